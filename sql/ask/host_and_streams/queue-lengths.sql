-- Question: How full are the launch queues of the streams?
-- Reading: A queue near 0 most of the time starves its stream. A queue near 1024 blocks the host in its launch calls.
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    q.device, q.stream, max(q.queue_length) AS longest, median(q.queue_length) AS median,
    round(100 * count(*) FILTER (WHERE q.queue_length = 0) / count(*), 1) AS percent_empty
FROM queue_length AS q
JOIN traces AS t ON q.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, q.device, q.stream
ORDER BY longest DESC, job, t.rank, q.device, q.stream, coalesce(t.job, t.trace_id)
