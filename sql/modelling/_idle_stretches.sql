-- One row: a part of an idle stretch of a device, with one reason.
-- How: until the launch of the work that ended it, by what the launching thread did, one sweep over each thread; from
-- then on it is launch. Without a launch all of it is unknown.
WITH asked AS (
    SELECT trace_id, device, gap_no, thread_id, start_ns, asked_ns AS end_ns
    FROM _idle_gaps
    WHERE thread_id IS NOT NULL AND asked_ns > start_ns
),
asking AS (
    SELECT trace_id, device, thread_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM asked
    GROUP BY trace_id, device, thread_id
),
-- A number is added where a gap, a call or a wait begins and taken off where it ends: no two of a kind overlap on a
-- thread. (DuckDB looks for the last value that is not NULL as far back as it is: a square in a trace without waits.)
marks AS (
    SELECT trace_id, device, thread_id, start_ns AS at_ns, gap_no AS gap, 0 AS call, 0 AS wait FROM asked
    UNION ALL
    SELECT trace_id, device, thread_id, end_ns, -gap_no, 0, 0 FROM asked
    UNION ALL
    SELECT
        a.trace_id, a.device, a.thread_id, c.start_ns, 0, CASE WHEN c.kind = 'call' THEN c.event_id + 1 ELSE 0 END,
        CASE WHEN c.kind = 'wait' THEN c.event_id + 1 ELSE 0 END
    FROM asking AS a
    JOIN _host_calls AS c
        ON c.trace_id = a.trace_id AND c.thread_id = a.thread_id AND c.start_ns < a.end_ns AND c.end_ns > a.start_ns
    UNION ALL
    SELECT
        a.trace_id, a.device, a.thread_id, c.end_ns, 0, CASE WHEN c.kind = 'call' THEN -c.event_id - 1 ELSE 0 END,
        CASE WHEN c.kind = 'wait' THEN -c.event_id - 1 ELSE 0 END
    FROM asking AS a
    JOIN _host_calls AS c
        ON c.trace_id = a.trace_id AND c.thread_id = a.thread_id AND c.start_ns < a.end_ns AND c.end_ns > a.start_ns
),
swept AS (
    SELECT
        trace_id, device, at_ns AS start_ns, lead(at_ns) OVER in_time AS end_ns,
        TRY_CAST(sum(gap) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS gap_no,
        TRY_CAST(sum(call) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) - 1 AS call_id,
        TRY_CAST(sum(wait) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) - 1 AS wait_id
    FROM marks
    WINDOW in_time AS (PARTITION BY trace_id, device, thread_id ORDER BY at_ns)
)
SELECT
    trace_id,  -- The trace.
    device,  -- The device.
    gap_no,  -- The idle stretch in _idle_gaps.
    start_ns,  -- Start, ns.
    end_ns,  -- End, ns.
    -- blocked: the launching thread waited for the GPU; operator: it was in another operator or call; host: it was in
    -- neither; launch: the work was launched, and had not begun; unknown: no launch is known.
    CASE WHEN wait_id >= 0 THEN 'blocked' WHEN call_id >= 0 THEN 'operator' ELSE 'host' END AS reason,
    CASE WHEN call_id >= 0 THEN call_id END AS call_event_id,  -- The operator or call; NULL outside of any.
    CASE WHEN wait_id >= 0 THEN wait_id END AS wait_event_id  -- The call that waits; NULL outside of any.
FROM swept
WHERE gap_no > 0 AND end_ns > start_ns
UNION ALL
SELECT trace_id, device, gap_no, asked_ns, end_ns, 'launch', NULL, NULL
FROM _idle_gaps
WHERE thread_id IS NOT NULL AND end_ns > asked_ns
UNION ALL
SELECT trace_id, device, gap_no, start_ns, end_ns, 'unknown', NULL, NULL
FROM _idle_gaps
WHERE thread_id IS NULL
