-- One row: a caveat about an Nsight Systems export, derived from its rows.
WITH unnamed AS (
    SELECT count(*) AS n
    FROM (
        SELECT coalesce(name_id, short_name_id) AS id FROM _nsys_work WHERE source = 'CUPTI_ACTIVITY_KIND_KERNEL'
        UNION ALL
        SELECT name_id FROM _nsys_calls
        UNION ALL
        SELECT text_id FROM _nsys_ranges WHERE text IS NULL
    ) AS i
    LEFT JOIN _nsys_strings AS s ON s.id = i.id
    WHERE s.value IS NULL
),
shared AS (
    SELECT count(*) AS n
    FROM (
        SELECT device, stream
        FROM _nsys_work
        WHERE stream IS NOT NULL
        GROUP BY device, stream
        HAVING count(DISTINCT context) > 1
    ) AS s
),
named_metrics AS (
    SELECT DISTINCT type_id, metric FROM _nsys_metric_names WHERE name IS NOT NULL
),
found AS (
    SELECT
        'nsys_unknown_string' AS check_name, 'warning' AS severity, n,
        'names that StringIds does not have: shown with their number' AS detail
    FROM unnamed
    UNION ALL
    SELECT
        'nsys_whole_graph', 'warning', count(*),
        'CUDA graphs that are one row as a whole: their kernels are not in the export; profile with '
        || '--cuda-graph-trace=node'
    FROM _nsys_work
    WHERE source = 'CUPTI_ACTIVITY_KIND_GRAPH_TRACE'
    UNION ALL
    SELECT
        'nsys_unknown_record', 'warning', count(*),
        'waits for CUDA events whose record the export does not have (CUPTI_ACTIVITY_KIND_CUDA_EVENT): what they wait '
        || 'for is unknown, and the critical path lacks these edges'
    FROM _nsys_event_waits
    WHERE is_for_event AND record_correlation IS NULL
    UNION ALL
    SELECT
        'nsys_device_of_wait', 'info', count(*),
        'waits that name another device than the GPU work of their context: they count as waits for that work'
    FROM _nsys_event_waits
    WHERE told_device <> device
    UNION ALL
    SELECT
        'nsys_unknown_wait', 'warning', count(*),
        'waits of a kind that is not known: the critical path lacks their edges'
    FROM _nsys_event_waits
    WHERE kind IS NULL
    UNION ALL
    SELECT
        'nsys_unknown_range', 'warning', count(*),
        'NVTX rows of a type that is not known (eventType) are left out'
    FROM _nsys_ranges AS r
    LEFT JOIN _nsys_meanings AS m ON m.enum = 'ENUM_NSYS_EVENT_TYPE' AND m.id = r.event_type
    WHERE r.event_type IS NOT NULL AND m.id IS NULL
    UNION ALL
    SELECT
        'nsys_shared_stream', 'warning', n,
        'streams of several contexts have the same number on a device, and count as one'
    FROM shared
    UNION ALL
    SELECT
        'nsys_other_gpus', 'info', count(*),
        'samples of metrics (GPU_METRICS) that do not say a GPU on which the process worked are left out'
    FROM _nsys_samples AS s
    LEFT JOIN _nsys_sampled_gpus AS g ON g.gpu = s.type_id & 255
    WHERE g.gpu IS NULL
    UNION ALL
    SELECT
        'nsys_unknown_metric', 'warning', count(*),
        'samples whose metric TARGET_INFO_GPU_METRICS does not name: shown with its number'
    FROM _nsys_samples AS s
    JOIN _nsys_sampled_gpus AS g ON g.gpu = s.type_id & 255
    LEFT JOIN named_metrics AS n ON n.type_id = s.type_id AND n.metric = s.metric
    WHERE n.metric IS NULL
)
SELECT
    check_name,  -- Name of the finding.
    severity,  -- info or warning.
    n,  -- Number of occurrences.
    detail  -- Explanation of the finding.
FROM found
WHERE n > 0
