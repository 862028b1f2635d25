-- One row: a trace with calls of several processes, and the evidence that traces of several ranks were merged into it.
-- How: correlation ids are per process. If calls of two processes have the same id, each call also gets the other
-- call's GPU work. TraceLens's TraceFusion makes the ids differ, but writes each event's rank as an argument. The lake
-- keeps the arguments of metadata events, so the ranks are read from these.
WITH calls AS (
    SELECT trace_id, pid, correlation
    FROM events
    WHERE ends_with(cat, '_runtime') AND correlation > 0 AND duration_ns IS NOT NULL
),
processes AS (
    SELECT DISTINCT trace_id, pid FROM calls
),
callers AS (
    SELECT trace_id, count(*) AS n
    FROM processes
    GROUP BY trace_id
    HAVING count(*) > 1
),
shared AS (
    SELECT trace_id, correlation
    FROM calls
    GROUP BY trace_id, correlation
    HAVING min(pid) <> max(pid)
),
ranks AS (
    SELECT m.trace_id, count(DISTINCT m.args ->> '$.rank') AS n
    FROM events AS m
    JOIN processes AS p ON p.trace_id = m.trace_id AND p.pid = m.pid
    WHERE m.ph = 'M'
    GROUP BY m.trace_id
)
SELECT
    c.trace_id,  -- The trace.
    c.n AS n_processes,  -- Number of processes that call CUDA, HIP or another runtime.
    coalesce(r.n, 0) AS n_ranks,  -- Number of ranks that the metadata events of these processes state.
    -- Number of correlation ids that several processes use.
    (SELECT count(*) FROM shared AS s WHERE s.trace_id = c.trace_id) AS n_shared
FROM callers AS c
LEFT JOIN ranks AS r ON r.trace_id = c.trace_id
