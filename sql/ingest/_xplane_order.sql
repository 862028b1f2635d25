-- One row: an event of an XSpace and its number: names of threads come before, then by time, what encloses first.
WITH threads AS (
    SELECT count(*) AS n_threads FROM _xplane_lines WHERE device IS NULL
)
SELECT
    -- Number of the event.
    t.n_threads
    + row_number() OVER (ORDER BY r.start_ns NULLS FIRST, r.duration_ns DESC NULLS LAST, r.n) - 1 AS event_id,
    r.n  -- Its row in _xplane_rows.
FROM _xplane_rows AS r
CROSS JOIN threads AS t
