-- Question: How full are the launch queues of the streams?
-- Reading: `median` and `percent_empty` are of the time from a stream's first launch to its last change. A queue near
-- 0 most of the time starves its stream. A queue near 1024 blocks the host in its launch calls.
WITH lasting AS (
    SELECT
        trace_id, device, stream, queue_length,
        lead(at_ns) OVER (PARTITION BY trace_id, device, stream ORDER BY at_ns, change DESC, event_id) - at_ns AS ns
    FROM queue_length
),
lengths AS (
    SELECT
        coalesce(t.job, t.file) AS job, coalesce(t.job, t.trace_id) AS job_key, t.rank, q.device, q.stream,
        q.queue_length, coalesce(sum(q.ns), 0) AS ns
    FROM lasting AS q
    JOIN traces AS t ON q.trace_id = t.trace_id
    GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, q.device, q.stream, q.queue_length
),
summed AS (
    SELECT
        *, sum(ns) OVER (PARTITION BY job, job_key, rank, device, stream ORDER BY queue_length) AS up_to_ns,
        nullif(sum(ns) OVER (PARTITION BY job, job_key, rank, device, stream), 0) AS whole_ns
    FROM lengths
)
SELECT
    job, rank, device, stream, max(queue_length) AS longest,
    min(queue_length) FILTER (WHERE 2 * up_to_ns >= whole_ns) AS median,
    round(100 * coalesce(sum(ns) FILTER (WHERE queue_length = 0), 0) / max(whole_ns), 1) AS percent_empty
FROM summed
GROUP BY job, job_key, rank, device, stream
ORDER BY longest DESC, job, rank, device, stream, job_key
