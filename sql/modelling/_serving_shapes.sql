-- One row: a step of a server in which operators of rules/serving_tokens.csv ran, and how many tokens their shapes
-- tell.
-- How: those that start on the step's thread during it.
-- check: unique(trace_id, mark_id)
WITH marks AS (
    SELECT trace_id, pid, tid, start_ns, 0 AS turn, event_id, event_id AS mark_id, end_ns, NULL AS n_tokens
    FROM _serving_marks
    UNION ALL
    SELECT
        e.trace_id, e.pid, e.tid, e.start_ns, 1, e.event_id, NULL, NULL,
        TRY_CAST(nullif(regexp_extract(e.args ->> '$."Input Dims"', '^\[\[([0-9]+)', 1), '') AS BIGINT)
    FROM events AS e
    JOIN serving_tokens AS r ON r.op = e.name
    WHERE e.cat = 'cpu_op' AND e.start_ns IS NOT NULL
),
-- The step that began last is the n-th of its thread, where n is how many had begun by then.
numbered AS (
    SELECT
        trace_id, pid, tid, start_ns, mark_id, end_ns, n_tokens,
        count(mark_id) OVER (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_begun
    FROM marks
)
SELECT
    m.trace_id,  -- The trace.
    m.mark_id,  -- The step in _serving_marks.
    min(o.n_tokens) AS n_tokens  -- Tokens of all requests.
FROM numbered AS o
JOIN numbered AS m
    ON m.trace_id = o.trace_id AND m.pid IS NOT DISTINCT FROM o.pid AND m.tid IS NOT DISTINCT FROM o.tid
        AND m.n_begun = o.n_begun
WHERE o.n_tokens IS NOT NULL AND m.mark_id IS NOT NULL AND o.start_ns < m.end_ns
GROUP BY m.trace_id, m.mark_id
HAVING min(o.n_tokens) = max(o.n_tokens)
