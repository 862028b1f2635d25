-- One row: a call that launched GPU work, or that added GPU work to a graph during its capture, and the operator that
-- it belongs to.
-- How: of the operators open on the call's thread when the call starts, the outermost whose model covers everything
-- below it, else the innermost with a model, else the innermost. Running sums over starts and ends find the open
-- operators. At equal times, ends come before starts. Starts are ordered longest first, then by position in the file;
-- ends in reverse.
-- check: unique(trace_id, event_id)
WITH launching AS (
    SELECT trace_id, launch_event_id FROM kernels WHERE launch_event_id IS NOT NULL
    UNION
    SELECT trace_id, event_id FROM _capture_calls
),
calls AS (
    SELECT
        e.trace_id, t.thread_id, e.event_id, e.start_ns, greatest(e.duration_ns, 0) AS duration_ns
    FROM launching AS k
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.launch_event_id
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
),
busy_threads AS (
    SELECT DISTINCT trace_id, thread_id FROM calls
),
names AS (
    SELECT DISTINCT name FROM events WHERE cat = 'cpu_op'
),
kinds AS (
    SELECT n.name, k.owns_below
    FROM names AS n
    LEFT JOIN op_kinds AS k ON k.op = n.name
    WHERE k.op IS NOT NULL OR first_op_patterns(n.name) IS NOT NULL
),
ops AS (
    SELECT
        e.trace_id, t.thread_id, e.event_id, e.start_ns, e.duration_ns,
        CASE WHEN k.name IS NULL THEN 0 ELSE 1 END AS modelled,
        CASE WHEN k.owns_below THEN 1 ELSE 0 END AS owning
    FROM events AS e
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    JOIN busy_threads AS c ON c.trace_id = t.trace_id AND c.thread_id = t.thread_id
    LEFT JOIN kinds AS k ON k.name = e.name
    WHERE e.cat = 'cpu_op' AND e.duration_ns > 0 AND e.start_ns IS NOT NULL
),
marks AS (
    SELECT
        trace_id, thread_id, event_id, start_ns AS at_ns, 1 AS turn, -duration_ns AS by_length, event_id AS by_place,
        1 AS change, modelled, owning
    FROM ops
    UNION ALL
    SELECT trace_id, thread_id, event_id, start_ns + duration_ns, 0, duration_ns, -event_id, -1, -modelled, -owning
    FROM ops
    UNION ALL
    SELECT trace_id, thread_id, event_id, start_ns, 1, -duration_ns, event_id, 0, 0, 0 FROM calls
),
ordered AS (
    SELECT
        trace_id, thread_id, event_id, change, modelled, owning,
        row_number() OVER thread AS ordinal,
        sum(change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_open,
        sum(modelled) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_modelled,
        sum(owning) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_owning
    FROM marks
    WINDOW thread AS (PARTITION BY trace_id, thread_id ORDER BY at_ns, turn, by_length, by_place)
),
-- The operator open at a depth is the last that reached that depth. This step finds its ordinal, because last_value
-- with IGNORE NULLS would search back over all calls since then, for each call.
found AS (
    SELECT
        trace_id, thread_id, event_id, change, n_open, n_modelled, n_owning,
        max(CASE WHEN change = 1 THEN ordinal END) OVER (
            PARTITION BY trace_id, thread_id, n_open ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS innermost,
        max(CASE WHEN modelled = 1 THEN ordinal END) OVER (
            PARTITION BY
                trace_id, thread_id,
                n_modelled
            ORDER BY ordinal
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS innermost_modelled,
        max(CASE WHEN owning = 1 AND n_owning = 1 THEN ordinal END) OVER (
            PARTITION BY trace_id, thread_id ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS outermost_owning
    FROM ordered
    WHERE change >= 0
),
placed AS (
    SELECT
        trace_id, thread_id, event_id,
        CASE
            WHEN n_owning > 0 THEN outermost_owning
            WHEN n_modelled > 0 THEN innermost_modelled
            WHEN n_open > 0 THEN innermost
        END AS ordinal
    FROM found
    WHERE change = 0
)
SELECT
    c.trace_id,  -- The trace.
    c.event_id,  -- The call.
    o.event_id AS op_event_id  -- The operator; NULL where there is none.
FROM placed AS c
LEFT JOIN ordered AS o ON o.trace_id = c.trace_id AND o.thread_id = c.thread_id AND o.ordinal = c.ordinal
