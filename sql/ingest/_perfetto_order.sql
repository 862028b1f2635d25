-- One row: an event of a Perfetto trace that is no name: a slice or an end of an arrow at it, an instant, GPU work.
-- How: by time; at the same time in the order of the file, arrows after their slice. Only what tells the order is
-- sorted, as whole rows would not fit in memory.
WITH events AS (
    SELECT n, at_ns, ph, duration_ns, CAST(NULL AS BIGINT) AS flow
    FROM _perfetto_rows
    WHERE ph NOT IN ('B', 'E')
    UNION ALL
    SELECT
        coalesce(begin_n, end_n), at_ns, CASE WHEN end_n IS NULL THEN 'B' WHEN begin_n IS NULL THEN 'E' ELSE 'X' END,
        duration_ns, NULL
    FROM _perfetto_pairs
    UNION ALL
    SELECT n, at_ns, ph, NULL, flow FROM _perfetto_arrows
),
names AS (
    SELECT count(*) AS n_names FROM _perfetto_names
)
SELECT
    -- Number of the event; names come before.
    s.n_names + row_number() OVER (ORDER BY e.at_ns, e.n, e.flow NULLS FIRST, e.ph) - 1 AS event_id,
    e.n,  -- Row in _perfetto_rows that it is, or is at.
    e.at_ns,  -- Its start, as there.
    e.ph,  -- X complete, B and E without their other half, i instant, s and f arrows.
    e.duration_ns,  -- Duration, ns.
    e.flow  -- Joins the ends of an arrow; NULL for what is no arrow.
FROM events AS e
CROSS JOIN names AS s
