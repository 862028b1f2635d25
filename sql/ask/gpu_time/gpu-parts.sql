-- Question: What does the time of each GPU divide into?
-- Reading: The parts of a device add up to the time from its first work to its last. Exposed work is not overlapped
-- with compute. `gpu-idle` shows what the GPU waits for.
-- Words: idle, utilization, exposed communication
WITH divided AS (
    SELECT
        coalesce(t.job, t.file) AS job, t.rank, t.trace_id, b.device, b.span_ns, p.part,
        CASE p.part
            WHEN 'compute' THEN b.compute_ns
            WHEN 'exposed communication' THEN b.exposed_communication_ns
            WHEN 'exposed memory' THEN b.exposed_memory_ns
            WHEN 'idle' THEN b.idle_ns
            ELSE b.busy_ns - b.compute_ns - b.exposed_communication_ns - b.exposed_memory_ns
        END AS part_ns
    FROM temporal_breakdown AS b
    JOIN traces AS t ON b.trace_id = t.trace_id
    CROSS JOIN (
        VALUES ('compute'), ('exposed communication'), ('exposed memory'), ('other work'), ('idle')
    ) AS p (part)
    WHERE b.span_ns > 0
)
SELECT job, rank, device, part, part_ns / 1e6 AS ms, 100 * part_ns / span_ns AS percent, trace_id
FROM divided
ORDER BY rank, device, part, job, trace_id
