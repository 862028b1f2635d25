-- One row: a caveat about rocprofiler-sdk's output, derived from its rows.
WITH queues AS (
    SELECT count(DISTINCT queue) AS n_queues, count(DISTINCT stream) AS n_streams
    FROM _rocm_work
    WHERE source = 'kernel'
    GROUP BY agent
),
untimed AS (
    SELECT 'GPU work' AS what FROM _rocm_work WHERE start_ns IS NULL OR end_ns IS NULL
    UNION ALL
    SELECT 'calls and ranges' FROM _rocm_calls WHERE start_ns IS NULL OR end_ns IS NULL
),
found AS (
    SELECT
        'rocm_without_time' AS check_name, 'warning' AS severity, count(*) AS n,
        what || ': rows without a start or an end' AS detail
    FROM untimed
    GROUP BY what
    UNION ALL
    SELECT
        'rocm_one_stream', 'warning', count(*),
        'devices whose kernels ran on several queues, all on one stream: streams were not recorded, so work that '
        || 'ran at the same time counts as one stream''s; profile with --hip-runtime-trace'
    FROM queues
    WHERE n_queues > 1 AND n_streams = 1
    UNION ALL
    SELECT
        'rocm_no_stream', 'warning', count(*),
        'GPU work without a stream: the queue stands for it, and where there is none either, its order is unknown: it '
        || 'is in sums of GPU time, but not on the critical path'
    FROM _rocm_work
    WHERE stream IS NULL
    UNION ALL
    SELECT
        'rocm_no_waits', 'warning', count(*),
        'calls that make a stream wait for an event: rocprofiler-sdk does not record what they wait for, so the '
        || 'critical path lacks these edges'
    FROM _rocm_calls_named
    WHERE name IN ('hipStreamWaitEvent', 'hipStreamWaitEvent_spt')
    UNION ALL
    SELECT
        'rocm_nameless', 'warning', count(*), 'calls and marks without a name: (no name)'
    FROM _rocm_calls_named
    WHERE is_nameless
    UNION ALL
    SELECT
        'rocm_unknown_kernel', 'warning', count(*), 'kernels without a name: shown with their number'
    FROM _rocm_work AS w
    LEFT JOIN _rocm_kernels AS k ON k.id = w.kernel
    WHERE w.source = 'kernel' AND coalesce(w.name, k.display_name, k.mangled_name) IS NULL
)
SELECT
    check_name,  -- Name of the finding.
    severity,  -- info or warning.
    n,  -- Number of occurrences.
    detail  -- Explanation of the finding.
FROM found
WHERE n > 0
