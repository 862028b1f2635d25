-- One row: a row of capture_metrics that a digest keeps: of a capture or one of its ranks, not of a step or a name.
-- check: unique(capture_id, rank, metric)
SELECT
    capture_id,  -- As in capture_metrics.
    rank,  -- As in capture_metrics.
    step,  -- As in capture_metrics: NULL.
    metric,  -- As in capture_metrics.
    name,  -- As in capture_metrics: NULL.
    value,  -- As in capture_metrics.
    unit  -- As in capture_metrics.
FROM capture_metrics
WHERE step IS NULL AND name IS NULL
