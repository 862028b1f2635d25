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
latest AS (
    SELECT
        trace_id, turn, start_ns, n_tokens,
        last_value(mark_id IGNORE NULLS) OVER own AS mark_id, last_value(end_ns IGNORE NULLS) OVER own AS end_ns
    FROM marks
    WINDOW
        own AS (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
)
SELECT
    trace_id,  -- The trace.
    mark_id,  -- The step in _serving_marks.
    min(n_tokens) AS n_tokens  -- Tokens of all requests.
FROM latest
WHERE turn = 1 AND start_ns < end_ns AND n_tokens IS NOT NULL
GROUP BY trace_id, mark_id
HAVING min(n_tokens) = max(n_tokens)
