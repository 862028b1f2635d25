-- One row: a profiler step, a device and a scope of work, with the time for which work of the scope runs in the step.
-- How: the intervals of a scope do not overlap. So the time in a step is the accumulated run time at the step's end,
-- minus that at its start. A single pass over steps and intervals in time order computes both.
-- check: unique(trace_id, step, device, scope)
WITH stretches AS (
    SELECT trace_id, device, scope, start_ns, end_ns FROM merged_intervals
    UNION ALL
    SELECT
        trace_id, device, CASE WHEN n_communication > 0 THEN 'exposed communication' ELSE 'exposed memory' END,
        start_ns, end_ns
    FROM _class_overlap
    WHERE n_compute = 0 AND (n_communication > 0 OR n_memory > 0) AND end_ns IS NOT NULL
),
scopes AS (
    SELECT DISTINCT trace_id, device, scope FROM stretches
),
-- At equal times, steps begin (-1) and end (1) before intervals begin.
marks AS (
    SELECT
        trace_id, device, scope, start_ns AS at_ns, end_ns, CAST(NULL AS BIGINT) AS step, CAST(NULL AS INTEGER) AS sign
    FROM stretches
    UNION ALL
    SELECT k.trace_id, k.device, k.scope, s.start_ns, NULL, s.step, -1
    FROM step_lengths AS s
    JOIN scopes AS k ON k.trace_id = s.trace_id
    UNION ALL
    SELECT k.trace_id, k.device, k.scope, s.end_ns, NULL, s.step, 1
    FROM step_lengths AS s
    JOIN scopes AS k ON k.trace_id = s.trace_id
),
-- The work that began before each mark, and its remaining time after the mark.
begun AS (
    SELECT
        trace_id, device, scope, step, sign, count(end_ns) OVER before AS n,
        coalesce(sum(end_ns - at_ns) OVER before, 0) AS begun_ns,
        greatest(coalesce(max(end_ns) OVER before, at_ns) - at_ns, 0) AS left_ns
    FROM marks
    WINDOW before AS (
        PARTITION BY trace_id, device, scope ORDER BY at_ns, sign NULLS LAST
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
SELECT
    trace_id,  -- The trace.
    step,  -- Number of the step.
    device,  -- Device.
    -- Scope as in merged_intervals, or exposed communication (without computation), or exposed memory (without
    -- computation or communication).
    scope,
    sum(sign * (begun_ns - left_ns)) AS ns  -- Time in the step with work of the scope, ns.
FROM begun
WHERE step IS NOT NULL
GROUP BY trace_id, step, device, scope
HAVING sum(sign * n) > 0 OR max(CASE WHEN sign = -1 THEN left_ns ELSE 0 END) > 0
