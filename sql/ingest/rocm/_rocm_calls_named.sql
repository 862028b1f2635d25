-- One row: a call, range or mark of one process of rocprofiler-sdk's output, with its name.
-- How: in a rocpd database names and domains are texts by number, and the message of a marker is in its event; CSV
-- files have them in the row. A mark, and a call that took no time, is a sample there: it has no name but the message.
WITH rows AS (
    SELECT
        c.start_ns, c.end_ns, c.thread, coalesce(c.correlation, e.correlation) AS correlation,
        coalesce(c.domain, d.value) AS domain, coalesce(c.name, n.value) AS function,
        CASE WHEN json_valid(e.details) THEN e.details ->> '$.message' END AS message
    FROM _rocm_calls AS c
    LEFT JOIN _rocm_event_details AS e ON e.id = c.event
    LEFT JOIN _rocm_strings AS d ON d.id = e.domain_id
    LEFT JOIN _rocm_strings AS n ON n.id = c.name_id
    UNION ALL
    SELECT
        s.at_ns, s.at_ns, t.thread, e.correlation, d.value, NULL,
        CASE WHEN json_valid(e.details) THEN e.details ->> '$.message' END
    FROM _rocm_samples AS s
    -- Those of other processes have tracks that are not staged.
    JOIN _rocm_tracks AS t ON t.id = s.track
    LEFT JOIN _rocm_event_details AS e ON e.id = s.event
    LEFT JOIN _rocm_strings AS d ON d.id = e.domain_id
),
domains AS (
    SELECT DISTINCT coalesce(domain, '') AS domain FROM rows
),
kinds AS (
    SELECT d.domain, r.cat
    FROM domains AS d
    JOIN rocm_domains AS r ON regexp_matches(d.domain, r.domain_pattern)
    QUALIFY row_number() OVER (PARTITION BY d.domain ORDER BY r.rule_order) = 1
)
SELECT
    r.start_ns,  -- Start, ns.
    r.end_ns,  -- End, ns; the start for a mark.
    r.thread,  -- Thread, as its row in the database is numbered: the system's number in what rocprofv3 writes.
    r.correlation,  -- Correlation id, which GPU work has too.
    k.cat,  -- Category by the domain; range: by name.
    coalesce(nullif(r.message, ''), r.function, '(no name)') AS name,  -- Message of a marker, else the function.
    coalesce(r.start_ns = r.end_ns, FALSE) AS is_mark,  -- It took no time.
    r.function IS NULL AND coalesce(r.message, '') = '' AS is_nameless,  -- A call whose name is not told.
    -- A range that may end on another thread: it does not nest.
    coalesce(r.function LIKE 'roctxProcessRange%' OR r.function LIKE 'roctxRangeStart%', FALSE) AS is_of_process
FROM rows AS r
JOIN kinds AS k ON k.domain = coalesce(r.domain, '')
WHERE k.cat <> 'none'
