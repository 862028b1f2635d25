-- One row: a recording of spans on a GPU, and the known device that the GPU was identified as.
-- How: the first rule of device_rules that matches name, memory and multiprocessors. A recording that no rule matches
-- has no row.
-- scope: lake
-- check: unique(recording_id)
WITH fitting AS (
    SELECT
        r.recording_id, d.device_key,
        row_number() OVER (PARTITION BY r.recording_id ORDER BY d.rule_order) AS choice
    FROM recordings AS r
    JOIN device_rules AS d
        ON regexp_matches(r.device_name, d.name_pattern)
            AND (d.min_gib IS NULL OR r.device_memory_bytes >= d.min_gib * 1073741824)
            AND (d.max_gib IS NULL OR r.device_memory_bytes <= d.max_gib * 1073741824)
            AND (
                d.sms IS NULL OR r.device_sms = d.sms
                OR (r.device_sms IS NULL AND NOT regexp_matches('', d.name_pattern))
            )
    WHERE NOT starts_with(r.device_name, 'cpu:')
)
SELECT
    recording_id,  -- The recording, in recordings.
    device_key  -- Key of the device in devices and device_peaks; NULL for a card that they do not have.
FROM fitting
WHERE choice = 1
