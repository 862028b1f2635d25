-- One row: a begin event of a Perfetto trace and its end event, or one that lacks the other.
-- How: those that belong together by their place (_perfetto_sides); of the others, an end closes the last open begin of
-- its track, by time.
WITH others AS (
    SELECT begin_n AS n, 'B' AS ph, begin_track AS track, begin_ns AS start_ns, 1 AS change
    FROM _perfetto_sides
    WHERE begin_n IS NOT NULL AND NOT is_pair
    UNION ALL
    SELECT end_n, 'E', end_track, end_ns, -1
    FROM _perfetto_sides
    WHERE end_n IS NOT NULL AND NOT is_pair
),
stacked AS (
    SELECT
        *,
        sum(change) OVER (PARTITION BY track ORDER BY start_ns, n ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        + CASE WHEN ph = 'E' THEN 1 ELSE 0 END AS depth
    FROM others
),
nested AS (
    SELECT
        n, ph, start_ns, lag(ph) OVER level AS last_ph, lead(n) OVER level AS next_n, lead(ph) OVER level AS next_ph,
        lead(start_ns) OVER level AS next_ns
    FROM stacked
    WINDOW level AS (PARTITION BY track, depth ORDER BY start_ns, n)
)
SELECT
    begin_n,  -- The begin event.
    end_n,  -- Its end event.
    begin_ns AS at_ns,  -- Start, ns, of an end alone its time; the least there is where that is not known.
    end_ns - begin_ns AS duration_ns  -- Time between them, ns.
FROM _perfetto_sides
WHERE is_pair
UNION ALL
SELECT n, CASE WHEN next_ph = 'E' THEN next_n END, start_ns, CASE WHEN next_ph = 'E' THEN next_ns - start_ns END
FROM nested
WHERE ph = 'B'
UNION ALL
SELECT NULL, n, start_ns, NULL
FROM nested
WHERE ph = 'E' AND last_ph IS DISTINCT FROM 'B'
UNION ALL
SELECT CASE WHEN ph = 'B' THEN n END, CASE WHEN ph = 'E' THEN n END, at_ns, NULL
FROM _perfetto_rows
WHERE ph IN ('B', 'E') AND start_ns IS NULL
