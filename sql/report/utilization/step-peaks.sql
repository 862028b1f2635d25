-- Question: How close do the steps come to the peaks?
-- Reading: One row per step and kind of peak, longest first.
SELECT x.*
FROM span_utilization AS x
JOIN traces AS t ON x.trace_id = t.trace_id
WHERE x.kind = 'step' AND x.phase = 'window'
ORDER BY x.wall_ns DESC, x.span_id, x.peak_kind
