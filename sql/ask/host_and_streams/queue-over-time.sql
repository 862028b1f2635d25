-- Question: How long is the launch queue over time?
-- Reading: Launches whose work has not started, over all streams, in 400 equal intervals of `span_ns`, from the first
-- change on. Only intervals with a change have a row. In the intervals after it, the queue is as long as
-- `last_waiting`. If the queue is empty while the GPU idles, the host is late. If the queue is full, the GPU is the
-- bottleneck.
-- Words: launch bound, host bound
WITH changes AS (
    SELECT
        q.trace_id, q.at_ns, sum(q.change) AS change,
        sum(sum(q.change)) OVER (PARTITION BY q.trace_id ORDER BY q.at_ns) AS waiting
    FROM queue_length AS q
    JOIN traces AS t ON q.trace_id = t.trace_id
    GROUP BY q.trace_id, q.at_ns
),
whole AS (
    SELECT trace_id, min(at_ns) AS start_ns, max(at_ns) - min(at_ns) + 1 AS span_ns
    FROM changes
    GROUP BY trace_id
),
stretches AS (
    SELECT
        c.trace_id, (c.at_ns - w.start_ns) * 400 // w.span_ns AS stretch, w.span_ns, max(c.waiting) AS most_waiting,
        sum(c.change) AS change
    FROM changes AS c
    JOIN whole AS w ON c.trace_id = w.trace_id
    GROUP BY c.trace_id, (c.at_ns - w.start_ns) * 400 // w.span_ns, w.span_ns
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, s.stretch, CAST(s.most_waiting AS BIGINT) AS most_waiting,
    CAST(sum(s.change) OVER (PARTITION BY s.trace_id ORDER BY s.stretch) AS BIGINT) AS last_waiting, s.span_ns,
    s.trace_id
FROM stretches AS s
JOIN traces AS t ON s.trace_id = t.trace_id
ORDER BY job, t.rank, s.trace_id, s.stretch
