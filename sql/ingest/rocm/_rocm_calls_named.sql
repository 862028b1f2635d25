-- One row: a call, range or mark of one process of rocprofiler-sdk's output, with its name.
-- How: a rocpd database stores names and domains as numbered texts, and the message of a marker in its event. CSV files
-- contain all three in the row. A mark or a call of zero duration is a sample in the database, with the message as its
-- only name.
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
    -- Samples of other processes have tracks that are not staged, so the join drops them.
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
    r.thread,  -- Id of the thread's row in the database; in files of rocprofv3, the system's thread id.
    r.correlation,  -- Correlation id, shared with the GPU work.
    k.cat,  -- Category by domain; range: the name decides.
    coalesce(nullif(r.message, ''), r.function, '(no name)') AS name,  -- Message of a marker, else the function.
    coalesce(r.start_ns = r.end_ns, FALSE) AS is_mark,  -- Whether its duration is zero.
    -- Whether neither a name nor a message is recorded.
    r.function IS NULL AND coalesce(r.message, '') = '' AS is_nameless,
    -- Whether it is a range that may end on another thread, and so does not nest.
    coalesce(r.function LIKE 'roctxProcessRange%' OR r.function LIKE 'roctxRangeStart%', FALSE) AS is_of_process
FROM rows AS r
JOIN kinds AS k ON k.domain = coalesce(r.domain, '')
WHERE k.cat <> 'none'
