-- One row: a begin event of a Perfetto trace and its end event.
-- How: PyTorch writes all begins of a kind in a row and then their ends in the same order, which goes back in time;
-- there the k-th end belongs to the k-th begin. Elsewhere an end closes the last open begin of its track, by time.
WITH marks AS (
    SELECT n, ph, run, place, track, ts_ns
    FROM _perfetto_rows
    WHERE ph IN ('B', 'E') AND ts_ns IS NOT NULL
),
sides AS (
    SELECT
        b.run, b.n AS begin_n, e.n AS end_n, e.ts_ns - b.ts_ns AS dur_ns,
        b.track = e.track AND e.ts_ns >= b.ts_ns AS fits
    FROM marks AS b
    JOIN marks AS e ON e.run = b.run AND e.place = b.place AND e.ph = 'E'
    WHERE b.ph = 'B'
),
sizes AS (
    SELECT
        run, count(*) FILTER (WHERE ph = 'B') AS n_begins, count(*) FILTER (WHERE ph = 'E') AS n_ends,
        max(ts_ns) FILTER (WHERE ph = 'B') AS last_begin_ns, min(ts_ns) FILTER (WHERE ph = 'E') AS first_end_ns
    FROM marks
    GROUP BY run
),
runs AS (
    SELECT z.run
    FROM sizes AS z
    JOIN sides AS s ON s.run = z.run
    WHERE z.n_begins = 1 OR (z.n_ends <= z.n_begins AND z.last_begin_ns > z.first_end_ns)
    GROUP BY z.run
    HAVING bool_and(s.fits)
),
in_order AS (
    SELECT s.begin_n, s.end_n, s.dur_ns
    FROM sides AS s
    JOIN runs AS r ON r.run = s.run
),
others AS (
    SELECT m.*, CASE WHEN m.ph = 'B' THEN 1 ELSE -1 END AS change
    FROM marks AS m
    WHERE
        m.n NOT IN (SELECT i.begin_n FROM in_order AS i)
        AND m.n NOT IN (SELECT i.end_n FROM in_order AS i)
),
stacked AS (
    SELECT
        *,
        sum(change) OVER (PARTITION BY track ORDER BY ts_ns, n ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        + CASE WHEN ph = 'E' THEN 1 ELSE 0 END AS depth
    FROM others
),
nested AS (
    SELECT
        n AS begin_n, ph, lead(n) OVER level AS end_n, lead(ph) OVER level AS next_ph,
        lead(ts_ns) OVER level - ts_ns AS dur_ns
    FROM stacked
    WINDOW level AS (PARTITION BY track, depth ORDER BY ts_ns, n)
)
SELECT
    begin_n,  -- The begin event.
    end_n,  -- Its end event.
    dur_ns  -- Time between them, ns.
FROM in_order
UNION ALL
SELECT begin_n, end_n, dur_ns
FROM nested
WHERE ph = 'B' AND next_ph = 'E'
