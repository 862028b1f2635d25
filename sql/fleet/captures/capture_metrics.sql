-- One row: a metric of a capture, of one of its ranks, of a step, or of a rank in a step.
-- How: summaries of the ranks in long format. For a whole capture, times are means over its ranks and their steps, so
-- that captures of different lengths can be compared; if only some ranks have steps, over these ranks. Ranks without
-- the metric, such as those without GPU work, do not count. The capture's step time is the mean over steps of the
-- slowest rank's step. Shares of paths are means over the ranks that have a path.
-- scope: capture
-- check: unique(capture_id, rank, step, metric, name)
WITH ranks AS (
    SELECT capture_id, rank, trace_id FROM capture_ranks WHERE left_out_reason IS NULL
),
rank_steps AS (
    SELECT DISTINCT r.capture_id, r.rank, s.step, s.duration_ns
    FROM ranks AS r
    JOIN step_times AS s ON s.trace_id = r.trace_id
),
rank_sizes AS (
    SELECT r.capture_id, r.rank, count(s.step) AS n_steps
    FROM ranks AS r
    LEFT JOIN rank_steps AS s ON s.capture_id = r.capture_id AND s.rank = r.rank
    GROUP BY r.capture_id, r.rank
),
sizes AS (
    SELECT capture_id, sum(n_steps) AS n_steps FROM rank_sizes GROUP BY capture_id
),
meant AS (
    SELECT
        r.capture_id, r.rank, CASE WHEN s.n_steps > 0 THEN r.n_steps ELSE 1 END AS n,
        CASE WHEN s.n_steps > 0 THEN 'ns per rank and step' ELSE 'ns per rank' END AS unit
    FROM rank_sizes AS r
    JOIN sizes AS s ON s.capture_id = r.capture_id
    WHERE r.n_steps > 0 OR s.n_steps = 0
),
slowest AS (
    SELECT capture_id, step, max(duration_ns) AS duration_ns FROM rank_steps GROUP BY capture_id, step
),
gpu AS (
    SELECT
        r.capture_id, r.rank, sum(b.span_ns) AS span, sum(b.busy_ns) AS busy, sum(b.idle_ns) AS idle,
        sum(b.compute_ns) AS compute, sum(b.communication_ns) AS communication, sum(b.memory_ns) AS memory,
        sum(b.exposed_communication_ns) AS exposed_communication, sum(b.exposed_memory_ns) AS exposed_memory
    FROM ranks AS r
    JOIN temporal_breakdown AS b ON b.trace_id = r.trace_id AND b.device IS NOT NULL
    GROUP BY r.capture_id, r.rank
),
gpu_steps AS (
    SELECT
        r.capture_id, r.rank, s.step, sum(s.busy_ns) AS busy, sum(s.compute_ns) AS compute,
        sum(s.communication_ns) AS communication
    FROM ranks AS r
    JOIN step_times AS s ON s.trace_id = r.trace_id AND s.device IS NOT NULL
    GROUP BY r.capture_id, r.rank, s.step
),
used AS (
    SELECT * FROM collectives WHERE refused_reason IS NULL
),
waits AS (
    SELECT r.capture_id, r.rank, r.step, sum(r.wait_ns) AS wait
    FROM collective_ranks AS r
    JOIN used AS u ON u.capture_id = r.capture_id AND u.collective_id = r.collective_id
    GROUP BY r.capture_id, r.rank, r.step
),
caused AS (
    SELECT
        capture_id, culprit_rank AS rank, step, sum(wait_ns) AS wait
    FROM used
    GROUP BY capture_id, culprit_rank, step
),
paths AS (
    SELECT
        r.capture_id, r.rank, TRY_CAST(replace(nullif(p.window_id, 'full'), 'ProfilerStep#', '') AS BIGINT) AS step,
        p.bound_by, p.percent
    FROM ranks AS r
    JOIN critical_path_summary AS p ON p.trace_id = r.trace_id AND p.profile = 'default'
    WHERE p.bound_by <> '' AND p.percent IS NOT NULL
),
kernel_times AS (
    SELECT r.capture_id, r.rank, o.name, sum(o.duration_ns) AS duration_ns
    FROM ranks AS r
    JOIN ops_by_shape AS o ON o.trace_id = r.trace_id AND o.device = 'gpu'
    GROUP BY r.capture_id, r.rank, o.name
),
rank_kernels AS (
    SELECT capture_id, rank, name, duration_ns
    FROM kernel_times
    QUALIFY row_number() OVER (PARTITION BY capture_id, rank ORDER BY duration_ns DESC, name) <= 20
),
summed_kernels AS (
    SELECT k.capture_id, k.name, sum(k.duration_ns) AS duration_ns, max(m.unit) AS unit
    FROM kernel_times AS k
    JOIN meant AS m ON m.capture_id = k.capture_id AND m.rank = k.rank
    GROUP BY k.capture_id, k.name
),
kernel_ranks AS (
    SELECT DISTINCT capture_id, rank FROM kernel_times
),
with_kernels AS (
    SELECT m.capture_id, sum(m.n) AS n
    FROM meant AS m
    JOIN kernel_ranks AS k ON k.capture_id = m.capture_id AND k.rank = m.rank
    GROUP BY m.capture_id
),
capture_kernels AS (
    SELECT *
    FROM summed_kernels
    QUALIFY row_number() OVER (PARTITION BY capture_id ORDER BY duration_ns DESC, name) <= 20
),
with_path AS (
    SELECT capture_id, count(DISTINCT rank) AS n_ranks FROM paths WHERE step IS NULL GROUP BY capture_id
),
rank_times AS (
    SELECT capture_id, rank, NULL AS step, 'span' AS metric, span AS ns FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'busy', busy FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'idle', idle FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'compute', compute FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'communication', communication FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'memory', memory FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'exposed_communication', exposed_communication FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'exposed_memory', exposed_memory FROM gpu
    UNION ALL
    SELECT capture_id, rank, NULL, 'wait', sum(wait) FROM waits GROUP BY capture_id, rank
),
metrics AS (
    SELECT capture_id, rank, step, metric, NULL AS name, ns AS value, 'ns' AS unit FROM rank_times
    UNION ALL
    SELECT capture_id, rank, NULL, 'caused_wait', NULL, sum(wait), 'ns' FROM caused GROUP BY capture_id, rank
    UNION ALL
    SELECT capture_id, rank, NULL, 'kernel', name, duration_ns, 'ns' FROM rank_kernels
    UNION ALL
    SELECT capture_id, rank, step, 'step', NULL, duration_ns, 'ns' FROM rank_steps
    UNION ALL
    SELECT capture_id, rank, step, 'busy', NULL, busy, 'ns' FROM gpu_steps
    UNION ALL
    SELECT capture_id, rank, step, 'compute', NULL, compute, 'ns' FROM gpu_steps
    UNION ALL
    SELECT capture_id, rank, step, 'communication', NULL, communication, 'ns' FROM gpu_steps
    UNION ALL
    SELECT capture_id, rank, step, 'wait', NULL, wait, 'ns' FROM waits WHERE step IS NOT NULL
    UNION ALL
    SELECT capture_id, rank, step, 'caused_wait', NULL, wait, 'ns' FROM caused WHERE step IS NOT NULL
    UNION ALL
    SELECT capture_id, rank, step, 'path', bound_by, percent, '%' FROM paths
    UNION ALL
    SELECT capture_id, NULL, step, 'step', NULL, duration_ns, 'ns' FROM slowest
    UNION ALL
    SELECT capture_id, NULL, NULL, 'step', NULL, avg(duration_ns), 'ns'
    FROM slowest
    GROUP BY capture_id
    UNION ALL
    SELECT
        t.capture_id, NULL, NULL, t.metric, NULL,
        1e0 * sum(t.ns) / sum(s.n) FILTER (WHERE t.ns IS NOT NULL), max(s.unit)
    FROM rank_times AS t
    JOIN meant AS s ON s.capture_id = t.capture_id AND s.rank = t.rank
    GROUP BY t.capture_id, t.metric
    UNION ALL
    SELECT k.capture_id, NULL, NULL, 'kernel', k.name, 1e0 * k.duration_ns / s.n, k.unit
    FROM capture_kernels AS k
    JOIN with_kernels AS s ON s.capture_id = k.capture_id
    UNION ALL
    SELECT p.capture_id, NULL, NULL, 'path', p.bound_by, sum(p.percent) / max(s.n_ranks), '% of a rank''s path'
    FROM paths AS p
    JOIN with_path AS s ON s.capture_id = p.capture_id
    WHERE p.step IS NULL
    GROUP BY p.capture_id, p.bound_by
)
SELECT
    capture_id,  -- The capture.
    CAST(rank AS BIGINT) AS rank,  -- The rank; NULL for all ranks together.
    CAST(step AS BIGINT) AS step,  -- The profiler step; NULL for the whole trace.
    metric,  -- The metric, in capture_metric_kinds.
    name,  -- Name of a kernel, or bound_by of the path; NULL for other metrics.
    CAST(value AS DOUBLE) AS value,  -- Value of the metric.
    unit  -- Unit of the value.
FROM metrics
