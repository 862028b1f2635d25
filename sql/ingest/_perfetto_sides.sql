-- One row: a place in a run of begin events of a Perfetto trace, with the begin and the end event there.
-- How: PyTorch writes all begins of a kind in a row and then their ends in the same order, which goes back in time;
-- there the k-th end belongs to the k-th begin.
WITH sides AS (
    SELECT
        run, place, max(n) FILTER (WHERE ph = 'B') AS begin_n, max(n) FILTER (WHERE ph = 'E') AS end_n,
        max(start_ns) FILTER (WHERE ph = 'B') AS begin_ns, max(start_ns) FILTER (WHERE ph = 'E') AS end_ns,
        max(track) FILTER (WHERE ph = 'B') AS begin_track, max(track) FILTER (WHERE ph = 'E') AS end_track
    FROM _perfetto_rows
    WHERE ph IN ('B', 'E') AND start_ns IS NOT NULL
    GROUP BY run, place
),
runs AS (
    SELECT run
    FROM sides
    GROUP BY run
    HAVING
        (count(begin_n) = 1 OR (count(end_n) <= count(begin_n) AND max(begin_ns) > min(end_ns)))
        AND bool_and(begin_track = end_track AND end_ns >= begin_ns)
)
SELECT
    s.begin_n,  -- The begin event.
    s.end_n,  -- The end event.
    s.begin_ns,  -- Time of the begin, ns.
    s.end_ns,  -- Time of the end, ns.
    s.begin_track,  -- Track of the begin.
    s.end_track,  -- Track of the end.
    r.run IS NOT NULL AND s.begin_n + s.end_n IS NOT NULL AS is_pair  -- They belong together.
FROM sides AS s
LEFT JOIN runs AS r ON r.run = s.run
