-- Question: Which streams wait for which kernels?
-- Reading: Waits for an event of another stream (cudaStreamWaitEvent), by the kernel waited for and the kernel that
-- waits. Streams of two devices may have the same number.
SELECT
    coalesce(t.job, t.file) AS job, w.wait_kind, a.name AS waits_for, a.device AS on_device, a.stream AS on_stream,
    b.name AS waiting, b.device AS waiting_device, b.stream AS waiting_stream, count(*) AS n
FROM event_waits AS w
JOIN kernels AS a ON a.trace_id = w.trace_id AND a.event_id = w.source_kernel_id
JOIN kernels AS b ON b.trace_id = w.trace_id AND b.event_id = w.waiting_kernel_id
JOIN traces AS t ON t.trace_id = w.trace_id
GROUP BY
    coalesce(t.job, t.file), coalesce(t.job, t.trace_id), w.wait_kind, a.name, a.device, a.stream, b.name, b.device,
    b.stream
ORDER BY
    n DESC, waits_for, waiting, on_device, on_stream, waiting_device, waiting_stream, job,
    coalesce(t.job, t.trace_id)
