-- One row: a device that ran GPU work of a trace, with its kind.
-- How: the listed device with the same number. If no listed device has that number (ROCm also counts the host's
-- processors), the kind of the listed devices, if all have the same kind.
-- check: unique(trace_id, device)
WITH ran AS (
    SELECT DISTINCT trace_id, device FROM kernels
),
alike AS (
    SELECT trace_id, min(device_key) AS device_key
    FROM trace_devices
    GROUP BY trace_id
    HAVING count(DISTINCT device_key) = 1 AND count(device_key) = count(*)
)
SELECT
    r.trace_id,  -- The trace.
    r.device,  -- Device number, as in kernels.
    -- The device in devices and device_peaks; NULL where it is unknown.
    CASE WHEN d.trace_id IS NOT NULL THEN d.device_key ELSE a.device_key END AS device_key
FROM ran AS r
LEFT JOIN trace_devices AS d ON d.trace_id = r.trace_id AND d.device = r.device
LEFT JOIN alike AS a ON a.trace_id = r.trace_id
