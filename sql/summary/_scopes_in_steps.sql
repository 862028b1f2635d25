-- One row: a profiler step, a device and a scope of its work that runs in the step, and for how long.
-- How: the stretches of a scope do not overlap, so what lies in a step is what had run by its end, less what had run by
-- its start: steps and stretches in one order of time, however many there are.
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
-- At one time, steps begin (-1) and end (1) before a stretch does.
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
-- What had begun before each time, and what is left of it.
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
    -- As in merged_intervals; or exposed communication (nothing computes), exposed memory (nor communicates).
    scope,
    sum(sign * (begun_ns - left_ns)) AS ns  -- How long work of the scope runs in the step, ns.
FROM begun
WHERE step IS NOT NULL
GROUP BY trace_id, step, device, scope
HAVING sum(sign * n) > 0 OR max(CASE WHEN sign = -1 THEN left_ns ELSE 0 END) > 0
