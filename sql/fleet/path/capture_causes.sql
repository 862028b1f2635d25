-- One row: a cause of a capture's length, on one of its ranks. The durations of a capture's rows add up to that length.
-- How: the segments of the path through all ranks to the last GPU work (capture_critical_path), summed by cause, as in
-- causes. The time of a late rank is the rank's work while the median of the others waited in a collective that it was
-- the last to join.
-- scope: capture
-- check: unique(capture_id, cause, rank, name)
WITH segments AS (
    SELECT
        w.capture_id, w.rank, w.trace_id, w.duration_ns, w.event_id, w.late_ns, w.guessed, w.cause,
        coalesce(n.name, w.label, e.name, '') AS name
    FROM _walked_segments AS w
    LEFT JOIN _event_names AS n ON n.name_no = w.name_no
    LEFT JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = w.event_id
    WHERE w.refused_reason IS NULL AND w.target = 'last_gpu_end'
),
parts AS (
    SELECT
        capture_id, rank, trace_id, cause, CAST(NULL AS VARCHAR) AS late_cause, name, event_id, guessed,
        duration_ns - late_ns AS duration_ns
    FROM segments
    WHERE duration_ns > late_ns
    UNION ALL
    SELECT capture_id, rank, trace_id, 'late_rank', cause, name, event_id, guessed, late_ns
    FROM segments
    WHERE late_ns > 0
),
longest AS (
    SELECT
        *, row_number() OVER (
            PARTITION BY capture_id, rank, cause, late_cause, name ORDER BY duration_ns DESC, event_id
        ) AS place
    FROM parts
),
summed AS (
    SELECT
        capture_id, rank, max(trace_id) AS trace_id, cause, late_cause, name, sum(duration_ns) AS duration_ns,
        count(*) AS times, max(CASE WHEN place = 1 THEN event_id END) AS event_id,
        sum(CASE WHEN guessed THEN duration_ns ELSE 0 END) AS inferred_ns
    FROM longest
    GROUP BY capture_id, rank, cause, late_cause, name
)
SELECT
    s.capture_id,  -- The capture.
    s.cause,  -- The cause, in cause_kinds; late_rank if other ranks waited for this rank.
    s.rank,  -- Rank that the time belongs to.
    -- The operator, kernel, call, annotation, Python function, thread or stream; for late_rank, the rank's number and
    -- its work while the others waited.
    CASE
        WHEN s.late_cause IS NULL THEN s.name
        ELSE 'rank ' || CAST(s.rank AS VARCHAR) || ', ' || k.title || ': ' || s.name
    END AS name,
    s.late_cause,  -- For late_rank, the cause of the rank's work while the others waited; else NULL.
    TRY_CAST(s.duration_ns AS BIGINT) AS duration_ns,  -- Time of the cause on the path, ns.
    -- duration_ns in percent of the path; the rows of a capture add up to 100.
    100e0 * s.duration_ns / nullif(sum(s.duration_ns) OVER (PARTITION BY s.capture_id), 0) AS share_percent,
    -- Time by which removing the cause under this name on all ranks (for late_rank, on this rank) shortens the capture,
    -- ns, by retiming. NULL if not computed (small shares, or more edges than threshold retimed_edges).
    n.saves_ns,
    n.options,  -- Options of what-if that return this number.
    -- Time by which removing all rows of the cause shortens the capture, ns; for late_rank, removing the late work of
    -- the rank that the others wait for most. NULL also if 1 % of the path or more is time of the cause without an edge
    -- to remove (before a rank's first event, clocks that drift).
    c.saves_ns AS cause_saves_ns,
    c.options AS cause_options,  -- Options of what-if that return this number.
    s.times,  -- Number of intervals of the path.
    s.trace_id,  -- The rank's trace.
    s.event_id,  -- Event of the longest interval.
    -- Part of duration_ns that follows from waits that no event records, ns.
    TRY_CAST(s.inferred_ns AS BIGINT) AS inferred_ns,
    2 * s.inferred_ns >= s.duration_ns AS inferred  -- True if at least half of duration_ns follows from such waits.
FROM summed AS s
LEFT JOIN cause_kinds AS k ON k.cause = s.late_cause
LEFT JOIN _capture_cause_savings AS c ON c.capture_id = s.capture_id AND c.cause = s.cause AND c.name IS NULL
LEFT JOIN _capture_cause_savings AS n
    ON
        n.capture_id = s.capture_id AND n.cause = s.cause AND n.name = s.name
        AND (s.late_cause IS NULL OR n.late_cause = s.late_cause AND n.rank = s.rank)
