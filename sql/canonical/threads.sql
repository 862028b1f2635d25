-- One row: a CPU thread (or GPU stream row) of a trace, identified by pid and tid.
-- How: number the distinct (pid, tid) of a trace in text order; the name is the last thread_name metadata event.
-- check: unique(trace_id, thread_id)
WITH named AS (
    SELECT
        trace_id, pid, tid, args ->> '$.name' AS thread_name,
        row_number() OVER (PARTITION BY trace_id, pid, tid ORDER BY event_id DESC) AS recency
    FROM events
    WHERE ph = 'M' AND name = 'thread_name'
),
seen AS (
    SELECT
        e.trace_id, e.pid, e.tid, count(*) AS n_events,
        coalesce(bool_or(s.is_operator AND s.side = 'cpu'), FALSE) AS works
    FROM events AS e
    LEFT JOIN category_sides AS s ON s.cat = e.cat
    WHERE e.duration_ns IS NOT NULL
    GROUP BY e.trace_id, e.pid, e.tid
)
SELECT
    s.trace_id,  -- The trace.
    -- Number of the thread within its trace, from 1.
    row_number() OVER (PARTITION BY s.trace_id ORDER BY s.pid, s.tid) AS thread_id,
    s.pid,  -- Process id as text; for GPU work the device number.
    s.tid,  -- Thread id as text; for GPU work the stream.
    -- tid; also the process if threads of several processes have operators or calls and this tid, as in containers.
    CASE
        WHEN s.works AND count(*) FILTER (WHERE s.works) OVER (PARTITION BY s.trace_id, s.tid) > 1
            THEN s.tid || ', process ' || s.pid
        ELSE s.tid
    END AS label,
    n.thread_name,  -- Name of the thread from the profiler; NULL if the trace has none.
    s.n_events  -- Number of events with a duration on this thread.
FROM seen AS s
LEFT JOIN named AS n
    ON n.trace_id = s.trace_id AND n.pid = s.pid AND n.tid = s.tid AND n.recency = 1
