-- One row: a call that added GPU work to a CUDA or HIP graph during its capture, instead of running the work.
-- How: calls by name (rules/capture_calls.csv) that start between the begin and the end of a capture and launched no
-- GPU work. If several captures of a process are open, the call belongs to the capture on its own thread, else to none.
-- check: unique(trace_id, event_id)
WITH names AS (
    SELECT concat(c.name, s.suffix) AS name, c.role
    FROM capture_calls AS c
    CROSS JOIN call_suffixes AS s
),
captures AS (
    SELECT
        *, CAST(pow(2, ceil(ln(greatest(stop_ns - begun_ns, 1)) / ln(2)) + 1) AS BIGINT) AS part_ns
    FROM _graph_captures
),
parts AS (
    SELECT *, begun_ns // part_ns AS part FROM captures
    UNION ALL
    SELECT *, stop_ns // part_ns AS part FROM captures WHERE stop_ns // part_ns > begun_ns // part_ns
),
lengths AS (
    SELECT DISTINCT trace_id, pid, part_ns FROM captures
),
-- `part` is computed before the join with captures, as in _clip.
adding AS (
    SELECT
        e.trace_id, e.event_id, e.pid, e.tid, e.start_ns, r.role, e.args, l.part_ns, e.start_ns // l.part_ns AS part
    FROM events AS e
    JOIN names AS r ON r.name = e.name AND r.role NOT IN ('begin', 'end')
    JOIN lengths AS l ON l.trace_id = e.trace_id AND l.pid = e.pid
    WHERE e.duration_ns IS NOT NULL
),
calls AS (
    SELECT
        c.trace_id, c.event_id AS capture_id, c.stop_ns, e.event_id, e.start_ns, e.role AS cat, e.args,
        CASE WHEN e.tid = c.tid THEN 1 ELSE 0 END AS is_own
    FROM parts AS c
    JOIN adding AS e ON e.trace_id = c.trace_id AND e.pid = c.pid AND e.part_ns = c.part_ns AND e.part = c.part
    LEFT JOIN launches AS l ON l.trace_id = e.trace_id AND l.event_id = e.event_id
    WHERE l.event_id IS NULL AND e.start_ns >= c.begun_ns AND e.start_ns < c.stop_ns
),
counted AS (
    SELECT
        trace_id, capture_id, stop_ns, event_id, start_ns, cat, args, is_own,
        count(*) OVER (PARTITION BY trace_id, event_id) AS n_captures
    FROM calls
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The call.
    capture_id,  -- The call that began the capture.
    stop_ns,  -- End of the capture, ns.
    -- Position of the call in the capture, from 0.
    row_number() OVER (PARTITION BY trace_id, capture_id ORDER BY start_ns, event_id) - 1 AS ordinal,
    cat,  -- Category of the added GPU work: kernel, gpu_memcpy or gpu_memset.
    args ->> '$."kernel"' AS kernel_name,  -- Name of the kernel, which HIP records; NULL where the call has none.
    args ->> '$."grid"' AS grid,  -- Grid as JSON; NULL where the call has none.
    args ->> '$."block"' AS block  -- Block as JSON; NULL where the call has none.
FROM counted
WHERE is_own = 1 OR n_captures = 1
