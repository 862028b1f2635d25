-- One row: a trace with GPU work, with what its rows say that cannot be: work that is there twice, lasts no time, or
-- overlaps on a stream.
-- How: a row repeats the one before it on its stream if start, length, name and correlation are the same. Among the
-- other rows, an overlap is the part of a row before the end of an earlier one.
WITH work AS (
    SELECT
        e.trace_id, e.pid, coalesce(e.device, -1) AS device, coalesce(e.stream, -1) AS stream, e.tid, e.name,
        e.start_ns, e.duration_ns, e.correlation
    FROM events AS e
    JOIN category_sides AS s ON s.cat = e.cat AND s.side = 'gpu'
    WHERE e.start_ns IS NOT NULL AND e.duration_ns >= 0
),
compared AS (
    SELECT
        *,
        coalesce(
            lag(start_ns) OVER by_start = start_ns
            AND lag(duration_ns) OVER by_start = duration_ns
            AND lag(name) OVER by_start = name
            AND lag(correlation) OVER by_start IS NOT DISTINCT FROM correlation,
            FALSE
        ) AS is_repeated,
        coalesce(
            max(start_ns + duration_ns) OVER (by_start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns
        ) AS last_end_ns
    FROM work
    WINDOW by_start AS (
        PARTITION BY trace_id, pid, device, stream, tid ORDER BY start_ns, duration_ns, name, correlation
    )
)
SELECT
    trace_id,  -- The trace.
    count(*) AS n_rows,  -- Its rows of GPU work.
    count(*) FILTER (WHERE is_repeated) AS n_repeated,  -- Rows that repeat another one.
    count(*) FILTER (WHERE duration_ns = 0) AS n_without_length,  -- Rows of length 0.
    -- Sum of the lengths, without repeated rows, ns.
    CAST(sum(duration_ns) FILTER (WHERE NOT is_repeated) AS BIGINT) AS gpu_ns,
    -- Rows that overlap an earlier one.
    count(*) FILTER (WHERE NOT is_repeated AND last_end_ns > start_ns) AS n_overlapping,
    CAST(
        sum(greatest(0, least(start_ns + duration_ns, last_end_ns) - start_ns)) FILTER (WHERE NOT is_repeated) AS BIGINT
    ) AS overlap_ns  -- Overlaps on the rows' own streams, ns.
FROM compared
GROUP BY trace_id
