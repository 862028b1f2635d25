-- Question: How close do modules come to the peaks of the data sheet?
-- Reading: One row per module and phase with its use of the data sheet's peaks, most GPU time first.
SELECT x.*
FROM span_name_utilization AS x
JOIN traces AS t ON x.trace_id = t.trace_id
-- A device that is not in devices has no peaks, so peak_kind is NULL.
WHERE x.kind = 'module' AND coalesce(x.peak_kind, 'datasheet') = 'datasheet'
ORDER BY x.busy_ns DESC, x.name, x.phase
