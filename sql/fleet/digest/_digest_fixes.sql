-- model: _digest_causes
-- One row: a row of causes that a digest keeps. It keeps the threshold('digest_names') names of a cause with the most
-- time in a window. The other names of the cause are summed as (other names), so durations and shares still add up.
-- scope: trace
-- check: unique(trace_id, window_id, cause, name)
WITH placed AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY trace_id, window_id, cause ORDER BY duration_ns DESC, name)
        > threshold('digest_names')
        AND count(*) OVER (PARTITION BY trace_id, window_id, cause) > threshold('digest_names') + 1 AS is_small
    FROM causes
)
SELECT
    trace_id,  -- As in causes.
    window_id,  -- As in causes.
    cause,  -- As in causes.
    CASE WHEN is_small THEN '(other names)' ELSE name END AS name,  -- As in causes, or (other names).
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns,  -- As in causes, ns.
    sum(share_percent) AS share_percent,  -- As in causes.
    TRY_CAST(sum(gpu_idle_ns) AS BIGINT) AS gpu_idle_ns,  -- As in causes, ns.
    TRY_CAST(sum(exposed_ns) AS BIGINT) AS exposed_ns,  -- As in causes, ns.
    CASE WHEN NOT is_small THEN max(saves_ns) END AS saves_ns,  -- As in causes, ns; NULL for (other names).
    -- As in causes, ns; NULL for (other names).
    CASE WHEN NOT is_small THEN max(halved_saves_ns) END AS halved_saves_ns,
    max(cause_saves_ns) AS cause_saves_ns,  -- As in causes, ns.
    TRY_CAST(sum(times) AS BIGINT) AS times,  -- As in causes.
    CASE WHEN NOT is_small THEN max(event_id) END AS event_id,  -- As in causes; NULL for (other names).
    -- As in causes; for (other names), true if at least half of their time is inferred.
    2 * sum(CASE WHEN inferred THEN duration_ns ELSE 0 END) >= sum(duration_ns) AS inferred
FROM placed
GROUP BY trace_id, window_id, cause, is_small, CASE WHEN is_small THEN '(other names)' ELSE name END;

-- model: _digest_causes_without_profiler
-- One row: a row of causes_without_profiler that a digest keeps, as in _digest_causes.
-- scope: trace
-- check: unique(trace_id, window_id, cause, name)
WITH placed AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY trace_id, window_id, cause ORDER BY duration_ns DESC, name)
        > threshold('digest_names')
        AND count(*) OVER (PARTITION BY trace_id, window_id, cause) > threshold('digest_names') + 1 AS is_small
    FROM causes_without_profiler
)
SELECT
    trace_id,  -- As in causes_without_profiler.
    window_id,  -- As in causes_without_profiler.
    cause,  -- As in causes_without_profiler.
    -- As in causes_without_profiler, or (other names).
    CASE WHEN is_small THEN '(other names)' ELSE name END AS name,
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns,  -- As in causes_without_profiler, ns.
    sum(percent) AS percent,  -- As in causes_without_profiler.
    TRY_CAST(sum(gpu_idle_ns) AS BIGINT) AS gpu_idle_ns,  -- As in causes_without_profiler, ns.
    TRY_CAST(sum(exposed_ns) AS BIGINT) AS exposed_ns,  -- As in causes_without_profiler, ns.
    -- As in causes_without_profiler, ns; NULL for (other names).
    CASE WHEN NOT is_small THEN max(saves_ns) END AS saves_ns,
    -- As in causes_without_profiler, ns; NULL for (other names).
    CASE WHEN NOT is_small THEN max(halved_saves_ns) END AS halved_saves_ns,
    max(cause_saves_ns) AS cause_saves_ns,  -- As in causes_without_profiler, ns.
    TRY_CAST(sum(times) AS BIGINT) AS times,  -- As in causes_without_profiler.
    -- As in causes_without_profiler; NULL for (other names).
    CASE WHEN NOT is_small THEN max(event_id) END AS event_id,
    -- As in causes_without_profiler; for (other names), true if at least half of their time is inferred.
    2 * sum(CASE WHEN inferred THEN duration_ns ELSE 0 END) >= sum(duration_ns) AS inferred
FROM placed
GROUP BY trace_id, window_id, cause, is_small, CASE WHEN is_small THEN '(other names)' ELSE name END;

-- model: _digest_step_causes
-- One row: a row of step_causes that a digest keeps, as in _digest_causes.
-- scope: trace
-- check: unique(trace_id, step, cause, name)
WITH placed AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY trace_id, step, cause ORDER BY duration_ns DESC, name)
        > threshold('digest_names')
        AND count(*) OVER (PARTITION BY trace_id, step, cause) > threshold('digest_names') + 1 AS is_small
    FROM step_causes
)
SELECT
    trace_id,  -- As in step_causes.
    step,  -- As in step_causes.
    cause,  -- As in step_causes.
    CASE WHEN is_small THEN '(other names)' ELSE name END AS name,  -- As in step_causes, or (other names).
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns,  -- As in step_causes, ns.
    sum(percent) AS percent,  -- As in step_causes.
    TRY_CAST(sum(n_stretches) AS BIGINT) AS n_stretches  -- As in step_causes.
FROM placed
GROUP BY trace_id, step, cause, CASE WHEN is_small THEN '(other names)' ELSE name END;

-- model: _digest_fixes
-- One row: a row of fixes that a digest keeps: the threshold('digest_fixes') fixes that save the most in a window.
-- scope: trace
-- check: unique(trace_id, window_id, fix, name)
SELECT
    trace_id,  -- As in fixes.
    window_id,  -- As in fixes.
    fix,  -- As in fixes.
    name,  -- As in fixes.
    change,  -- As in fixes.
    saves_ns,  -- As in fixes, ns.
    saves_percent,  -- As in fixes.
    without_profiler,  -- As in fixes.
    options,  -- As in fixes.
    same_stretch_as,  -- As in fixes.
    is_bound,  -- As in fixes.
    caveat  -- As in fixes.
FROM (
    SELECT
        *, row_number() OVER (PARTITION BY trace_id, window_id ORDER BY saves_ns DESC, fix, name) AS place
    FROM fixes
) AS placed
WHERE place <= threshold('digest_fixes')
