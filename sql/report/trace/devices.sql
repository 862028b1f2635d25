-- Question: Which devices do the traces name?
-- Reading: One row per device, and one row per trace that lists no devices.
SELECT t.trace_id, x.device, coalesce(x.name, t.device_name) AS name, x.device_key
FROM traces AS t
LEFT JOIN trace_devices AS x ON x.trace_id = t.trace_id
ORDER BY t.trace_id, x.device
