-- One row: a caveat about a Perfetto trace, derived from its rows.
WITH found AS (
    SELECT
        'perfetto_no_track' AS check_name, 'warning' AS severity, count(*) AS n,
        'slices of tracks that no packet describes: their process is NULL' AS detail
    FROM _perfetto_rows AS r
    LEFT JOIN _perfetto_tracks AS t ON t.track = r.track
    WHERE r.stage IS NULL AND t.pid IS NULL AND r.ph <> 'E'
    UNION ALL
    SELECT
        'perfetto_no_direction', 'info', count(*),
        'copies whose direction is unknown: they are in no sum of copies to or from the host'
    FROM _perfetto_rows AS r
    LEFT JOIN _perfetto_copies AS k
        ON k.kind_key = CASE
                WHEN r.name IN ('Memcpy', 'Memset')
                    THEN CAST(json_array(
                        r.name, r.args ->> '$."copy kind"', r.args ->> '$."src kind"', r.args ->> '$."dst kind"',
                        r.args ->> '$."memory kind"'
                    ) AS VARCHAR)
            END
    WHERE r.name = 'Memcpy' AND r.ph IN ('B', 'X') AND k.kind_key IS NULL
    UNION ALL
    SELECT
        'perfetto_boot_time', 'info', count(*),
        'times count from the start of the machine: ranks on several machines have no common clock'
    FROM (SELECT max(start_ns) AS last_ns FROM _perfetto_rows) AS ends
    WHERE last_ns < threshold('dated_ns')
)
SELECT
    check_name,  -- Name of the finding.
    severity,  -- info or warning.
    n,  -- Number of occurrences.
    detail  -- Explanation of the finding.
FROM found
WHERE n > 0
