-- One row: the counts of GPU rows of the trace that cannot be real, because they are repeated, have zero length, or
-- overlap on their stream. A trace without GPU work has no row.
-- How: a row repeats the preceding row on its stream if start, length, name and correlation are equal. Among the other
-- rows, an overlap is the part of a row before the end of an earlier row. Sorting keeps all rows in memory, so hashes
-- replace names and streams.
WITH work AS (
    SELECT
        hash(e.pid, e.device, e.stream, e.tid) AS lane, hash(e.name, e.correlation) AS identity, e.start_ns,
        e.duration_ns
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    WHERE e.start_ns IS NOT NULL AND e.duration_ns >= 0
),
compared AS (
    SELECT
        start_ns, duration_ns,
        coalesce(
            lag(start_ns) OVER by_start = start_ns
            AND lag(duration_ns) OVER by_start = duration_ns
            AND lag(identity) OVER by_start = identity,
            FALSE
        ) AS is_repeated,
        coalesce(
            max(start_ns + duration_ns) OVER (by_start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns
        ) AS last_end_ns
    FROM work
    WINDOW by_start AS (PARTITION BY lane ORDER BY start_ns, duration_ns, identity)
)
SELECT
    count(*) AS n_rows,  -- Number of GPU rows.
    count(*) FILTER (WHERE is_repeated) AS n_repeated,  -- Number of rows that repeat another row.
    count(*) FILTER (WHERE duration_ns = 0) AS n_without_length,  -- Number of rows of length 0.
    -- Sum of the lengths, without repeated rows, ns.
    CAST(sum(duration_ns) FILTER (WHERE NOT is_repeated) AS BIGINT) AS gpu_ns,
    -- Number of rows that overlap an earlier row.
    count(*) FILTER (WHERE NOT is_repeated AND last_end_ns > start_ns) AS n_overlapping,
    CAST(
        sum(greatest(0, least(start_ns + duration_ns, last_end_ns) - start_ns)) FILTER (WHERE NOT is_repeated) AS BIGINT
    ) AS overlap_ns  -- Summed overlaps, ns.
FROM compared
HAVING count(*) > 0
