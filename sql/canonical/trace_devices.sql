-- One row: a device that a trace lists in its metadata, and the known device that it was identified as.
-- How: the first rule of device_rules that matches name, memory and multiprocessors. If no rule matches, device_key is
-- NULL, and so is every utilization.
-- check: unique(trace_id, device)
WITH listed AS (
    SELECT
        t.trace_id,
        TRY_CAST(t.metadata ->> ('$.deviceProperties[' || p.ordinal || '].id') AS BIGINT) AS device,
        t.metadata ->> ('$.deviceProperties[' || p.ordinal || '].name') AS name,
        TRY_CAST(t.metadata ->> ('$.deviceProperties[' || p.ordinal || '].totalGlobalMem') AS BIGINT) AS memory_bytes,
        TRY_CAST(t.metadata ->> ('$.deviceProperties[' || p.ordinal || '].numSms') AS BIGINT) AS sms,
        row_number() OVER (
            PARTITION BY t.trace_id, t.metadata ->> ('$.deviceProperties[' || p.ordinal || '].id') ORDER BY p.ordinal
        ) AS choice
    FROM traces AS t
    CROSS JOIN
        unnest(range(CAST(least(json_array_length(t.metadata, '$.deviceProperties'), 1024) AS BIGINT))) AS p (ordinal)
    WHERE TRY_CAST(t.metadata ->> ('$.deviceProperties[' || p.ordinal || '].id') AS BIGINT) IS NOT NULL
),
fitting AS (
    SELECT
        l.trace_id, l.device, r.device_key,
        row_number() OVER (PARTITION BY l.trace_id, l.device ORDER BY r.rule_order) AS choice
    FROM listed AS l
    JOIN device_rules AS r
        ON regexp_matches(l.name, r.name_pattern)
            AND (r.min_gib IS NULL OR l.memory_bytes >= r.min_gib * 1073741824)
            AND (r.max_gib IS NULL OR l.memory_bytes <= r.max_gib * 1073741824)
            AND (r.sms IS NULL OR l.sms = r.sms OR (l.sms IS NULL AND NOT regexp_matches('', r.name_pattern)))
    WHERE l.choice = 1
)
SELECT
    l.trace_id,  -- The trace.
    l.device,  -- Device number, as in kernels.
    l.name,  -- Name of the device from the runtime.
    l.memory_bytes,  -- Its memory, bytes.
    l.sms,  -- Streaming multiprocessors, or compute units.
    f.device_key  -- Key of the device in devices and device_peaks; NULL if no rule matches.
FROM listed AS l
LEFT JOIN fitting AS f ON f.trace_id = l.trace_id AND f.device = l.device AND f.choice = 1
WHERE l.choice = 1
