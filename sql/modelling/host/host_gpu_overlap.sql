-- model: _host_calls
-- One row: an interval in which a thread was inside an operator or runtime call (call), or inside a call that waits for
-- the GPU (wait).
-- How: _loaded_events decides which events are calls, and which calls wait, as for the path. The outermost of nested
-- calls owns the interval. If two calls cross, the later call owns the rest.
WITH
-- A call that copies to pageable memory waits, whatever its name is. A barrier on XPU is excluded, because its times
-- are GPU times.
calls AS (
    SELECT
        p.trace_id, e.thread_id, e.event_id, e.start_ns, e.start_ns + e.duration_ns AS end_ns, e.is_blocking AS is_wait
    FROM _loaded_events AS e
    JOIN _profiles AS p ON p.trace_profile_id = e.trace_profile_id AND p.profile = 'default'
    WHERE e.is_operator AND e.duration_ns > 0
),
kinds AS (
    SELECT trace_id, thread_id, 'call' AS kind, event_id, start_ns, end_ns FROM calls
    UNION ALL
    SELECT trace_id, thread_id, 'wait', event_id, start_ns, end_ns FROM calls WHERE is_wait
),
reached AS (
    SELECT
        trace_id, thread_id, kind, event_id, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY trace_id, thread_id, kind ORDER BY start_ns, end_ns DESC, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM kinds
)
SELECT
    trace_id,  -- The trace.
    thread_id,  -- The thread in threads.
    kind,  -- call or wait.
    event_id,  -- The operator or call.
    greatest(start_ns, coalesce(reached_ns, start_ns)) AS start_ns,  -- Start of the interval, ns.
    end_ns  -- End of the interval, ns.
FROM reached
WHERE reached_ns IS NULL OR end_ns > reached_ns;

-- model: host_gpu_overlap
-- One row: a profiler step of a trace, or the whole trace, divided by whether the host, the GPU, both or neither was
-- busy. The four parts add up to duration_ns. A trace without GPU work, or without host calls, has no row.
-- How: the host is busy while any thread is in an operator or runtime call, but not in a call that waits for the GPU.
-- The GPU is busy while any device runs something. Python between operators does not count as busy.
-- check: unique(trace_id, step)
WITH marks AS (
    SELECT
        trace_id, thread_id, start_ns AS at_ns, CASE WHEN kind = 'call' THEN 1 ELSE 0 END AS calls,
        CASE WHEN kind = 'wait' THEN 1 ELSE 0 END AS waits
    FROM _host_calls
    UNION ALL
    SELECT
        trace_id, thread_id, end_ns, CASE WHEN kind = 'call' THEN -1 ELSE 0 END,
        CASE WHEN kind = 'wait' THEN -1 ELSE 0 END
    FROM _host_calls
),
threads_swept AS (
    SELECT
        trace_id, at_ns AS start_ns, lead(at_ns) OVER in_time AS end_ns,
        sum(calls) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_calls,
        sum(waits) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_waits
    FROM marks
    WINDOW in_time AS (PARTITION BY trace_id, thread_id ORDER BY at_ns)
),
both_sides AS (
    SELECT trace_id, start_ns, end_ns, 1 AS host, 0 AS gpu
    FROM threads_swept
    WHERE n_calls > 0 AND n_waits = 0 AND end_ns > start_ns
    UNION ALL
    SELECT trace_id, start_ns, end_ns, 0, 1 FROM merged_intervals WHERE scope = 'all' AND end_ns > start_ns
),
changes AS (
    SELECT trace_id, start_ns AS at_ns, host, gpu FROM both_sides
    UNION ALL
    SELECT trace_id, end_ns, -host, -gpu FROM both_sides
),
swept AS (
    SELECT
        trace_id, at_ns AS start_ns, lead(at_ns) OVER in_time AS end_ns,
        sum(host) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) > 0 AS host,
        sum(gpu) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) > 0 AS gpu
    FROM changes
    WINDOW in_time AS (PARTITION BY trace_id ORDER BY at_ns)
),
measured AS (
    SELECT trace_id FROM both_sides GROUP BY trace_id HAVING max(host) = 1 AND max(gpu) = 1
),
windows AS (
    SELECT t.trace_id, CAST(NULL AS BIGINT) AS step, t.trace_start_ns AS start_ns, t.trace_end_ns AS end_ns
    FROM traces AS t
    JOIN measured AS m ON m.trace_id = t.trace_id
    UNION ALL
    SELECT s.trace_id, s.step, s.start_ns, s.end_ns
    FROM step_lengths AS s
    JOIN measured AS m ON m.trace_id = s.trace_id
),
kinds AS (
    SELECT v.kind FROM (VALUES ('both'), ('host'), ('gpu')) AS v (kind)
),
-- The intervals of a kind, and the times at which windows begin (-1) and end (1).
marks_of_kinds AS (
    SELECT
        trace_id, CASE WHEN host AND gpu THEN 'both' WHEN host THEN 'host' ELSE 'gpu' END AS kind, start_ns AS at_ns,
        end_ns, CAST(NULL AS BIGINT) AS step, 0 AS sign
    FROM swept
    WHERE (host OR gpu) AND end_ns IS NOT NULL
    UNION ALL
    SELECT w.trace_id, k.kind, w.start_ns, NULL, w.step, -1 FROM windows AS w CROSS JOIN kinds AS k
    UNION ALL
    SELECT w.trace_id, k.kind, w.end_ns, NULL, w.step, 1 FROM windows AS w CROSS JOIN kinds AS k
),
-- Summed duration of these intervals up to each time: the intervals that began before it, minus the remainder of the
-- last.
lasted AS (
    SELECT
        *,
        coalesce(sum(end_ns - at_ns) OVER before, 0)
        - greatest(coalesce(max(end_ns) OVER before, at_ns) - at_ns, 0) AS ns
    FROM marks_of_kinds
    WINDOW before AS (
        PARTITION BY trace_id, kind ORDER BY at_ns, sign ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
cut AS (
    SELECT
        trace_id, step,
        sum(CASE WHEN kind = 'both' THEN sign * ns ELSE 0 END) AS both_ns,
        sum(CASE WHEN kind = 'host' THEN sign * ns ELSE 0 END) AS host_ns,
        sum(CASE WHEN kind = 'gpu' THEN sign * ns ELSE 0 END) AS gpu_ns
    FROM lasted
    WHERE sign <> 0
    GROUP BY trace_id, step
)
SELECT
    w.trace_id,  -- The trace.
    w.step,  -- Number of the step; NULL for the whole trace.
    w.start_ns,  -- Start, ns.
    w.end_ns - w.start_ns AS duration_ns,  -- Duration, ns.
    TRY_CAST(coalesce(c.both_ns, 0) AS BIGINT) AS both_busy_ns,  -- Host and GPU busy, ns.
    TRY_CAST(coalesce(c.host_ns, 0) AS BIGINT) AS only_host_ns,  -- Only the host, ns: nothing hides this work.
    TRY_CAST(coalesce(c.gpu_ns, 0) AS BIGINT) AS only_gpu_ns,  -- Only the GPU, ns: the host waits, or runs Python.
    -- Neither, ns: Python, loading data, the latency of launches.
    TRY_CAST(
        w.end_ns - w.start_ns - coalesce(c.both_ns, 0) - coalesce(c.host_ns, 0) - coalesce(c.gpu_ns, 0) AS BIGINT
    ) AS neither_ns
FROM windows AS w
LEFT JOIN cut AS c ON c.trace_id = w.trace_id AND c.step IS NOT DISTINCT FROM w.step;
