-- One row: an allocation of a memory snapshot, with the step, operator and module around it in the profiler trace, and
-- the frames of its stack.
-- How: a [memory] event of the trace at the same address within 100 us determines the thread and the time in ns. If
-- several events match, or the trace has no such events, the snapshot's clock determines the time. That clock is
-- truncated to the us, so an operator counts only if no operator begins or ends in that us on any thread, and only one
-- thread is in an operator. Both clocks are calibrated to Unix time independently; clock_gap_ns is their measured
-- difference. Operator and module are unknown if the difference exceeds 2 us on average, or if the trace shows other
-- allocations of the device but not this allocation (an unrecorded thread, or clocks further apart).
-- scope: lake
WITH in_traces AS (
    SELECT
        a.snapshot_id, a.allocation_id, a.device, a.address, a.size_bytes, a.alloc_ns, m.trace_id,
        count(*) OVER (PARTITION BY a.snapshot_id, a.allocation_id) AS n_traces
    FROM snapshot_allocations AS a
    JOIN snapshot_trace_matches AS m ON m.snapshot_id = a.snapshot_id
    JOIN traces AS t ON t.trace_id = m.trace_id
    WHERE a.alloc_ns >= t.trace_start_ns AND a.alloc_ns + 1000 <= t.trace_end_ns
),
placed AS (
    SELECT snapshot_id, allocation_id, device, address, size_bytes, alloc_ns, trace_id FROM in_traces WHERE n_traces = 1
),
traced AS (
    SELECT DISTINCT trace_id FROM snapshot_trace_matches WHERE trace_id IS NOT NULL
),
calls AS (
    SELECT
        e.trace_id, t.thread_id, CASE WHEN e.cat = 'cpu_op' THEN 'op' ELSE 'module' END AS kind, e.event_id, e.start_ns,
        e.duration_ns, CASE WHEN e.cat = 'cpu_op' THEN e.name ELSE substr(e.name, 12) END AS name
    FROM events AS e
    JOIN traced AS m ON m.trace_id = e.trace_id
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    WHERE e.duration_ns > 0 AND e.start_ns IS NOT NULL AND (
            e.cat = 'cpu_op' AND NOT starts_with(e.name, 'ProfilerStep#')
            OR e.cat = 'python_function' AND starts_with(e.name, 'nn.Module: ')
        )
),
blocks AS (
    SELECT
        p.snapshot_id, p.allocation_id, b.trace_id, b.event_id, b.alloc_ns, t.thread_id,
        count(*) OVER (PARTITION BY p.snapshot_id, p.allocation_id) AS n_blocks,
        count(*) OVER (PARTITION BY p.snapshot_id, b.trace_id, b.event_id) AS n_allocations
    FROM placed AS p
    JOIN memory_blocks AS b
        ON b.trace_id = p.trace_id AND b.device = p.device AND b.address = p.address AND b.size_bytes >= p.size_bytes
            AND b.alloc_ns BETWEEN p.alloc_ns - threshold('snapshot_block_ns')
            AND p.alloc_ns + threshold('snapshot_block_ns')
    JOIN events AS e ON e.trace_id = b.trace_id AND e.event_id = b.event_id
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    WHERE b.device_type IN (1, 6)
),
known AS (
    SELECT snapshot_id, allocation_id, thread_id, alloc_ns FROM blocks WHERE n_blocks = 1 AND n_allocations = 1
),
near AS (
    SELECT DISTINCT snapshot_id, allocation_id FROM blocks
),
shown AS (
    SELECT DISTINCT b.trace_id, b.device
    FROM memory_blocks AS b
    JOIN traced AS m ON m.trace_id = b.trace_id
    WHERE b.device_type IN (1, 6) AND b.alloc_ns IS NOT NULL
),
gaps AS (
    SELECT p.snapshot_id, p.trace_id, avg(abs(k.alloc_ns - p.alloc_ns)) AS gap_ns
    FROM known AS k
    JOIN placed AS p ON p.snapshot_id = k.snapshot_id AND p.allocation_id = k.allocation_id
    GROUP BY p.snapshot_id, p.trace_id
),
changes AS (
    SELECT
        trace_id, thread_id, kind, event_id, start_ns AS at_ns, 1 AS turn, -duration_ns AS by_length,
        event_id AS by_place,
        1 AS change
    FROM calls
    UNION ALL
    SELECT trace_id, thread_id, kind, event_id, start_ns + duration_ns, 0, duration_ns, -event_id, -1 FROM calls
),
looked_up AS (
    SELECT 'op' AS kind, FALSE AS is_last
    UNION ALL
    SELECT 'op', TRUE
    UNION ALL
    SELECT 'module', FALSE
    UNION ALL
    SELECT 'module', TRUE
),
-- First, find the thread: check the first and the last ns at which the allocation may have been made, among all calls
-- of the trace.
depths AS (
    SELECT
        trace_id, thread_id, kind, at_ns, turn, change,
        sum(change) OVER (
            PARTITION BY trace_id, thread_id, kind ORDER BY at_ns, turn, by_length, by_place
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_open
    FROM changes
),
busy AS (
    -- 1 where a thread enters its outermost call, -1 where it leaves that call.
    SELECT
        trace_id, thread_id, kind, at_ns, turn,
        CASE WHEN change = 1 AND n_open = 1 THEN 1 WHEN change = -1 AND n_open = 0 THEN -1 ELSE 0 END AS change
    FROM depths
),
all_threads AS (
    SELECT
        trace_id, kind, at_ns, turn, change, change * thread_id AS thread_change, 1 AS n_changes,
        CAST(NULL AS VARCHAR) AS snapshot_id, CAST(NULL AS BIGINT) AS allocation_id
    FROM busy
    UNION ALL
    SELECT
        p.trace_id, r.kind, CASE WHEN r.is_last THEN p.alloc_ns + 999 ELSE p.alloc_ns END, 2, 0, 0, 0, p.snapshot_id,
        p.allocation_id
    FROM placed AS p
    CROSS JOIN looked_up AS r
),
-- If exactly one thread is in a call, the sum over the threads in calls is its number.
summed AS (
    SELECT
        trace_id, kind, snapshot_id, allocation_id,
        sum(change) OVER so_far AS n_threads,
        sum(thread_change) OVER so_far AS thread_id,
        sum(n_changes) OVER so_far AS n_changes
    FROM all_threads
    WINDOW so_far AS (
        PARTITION BY trace_id, kind ORDER BY at_ns, turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
candidates AS (
    SELECT
        snapshot_id, allocation_id,
        max(CASE WHEN kind = 'op' THEN n_threads END) AS n_in_ops,
        max(CASE WHEN kind = 'op' THEN thread_id END) AS op_thread,
        max(CASE WHEN kind = 'op' THEN n_changes END) - min(CASE WHEN kind = 'op' THEN n_changes END) AS n_op_changes,
        max(CASE WHEN kind = 'module' THEN n_threads END) AS n_in_modules,
        max(CASE WHEN kind = 'module' THEN thread_id END) AS module_thread,
        max(CASE WHEN kind = 'module' THEN n_changes END)
        - min(CASE WHEN kind = 'module' THEN n_changes END) AS n_module_changes
    FROM summed
    WHERE snapshot_id IS NOT NULL
    GROUP BY snapshot_id, allocation_id
),
threads_found AS (
    SELECT
        p.snapshot_id, p.allocation_id, p.trace_id, coalesce(k.alloc_ns, p.alloc_ns) AS first_ns,
        coalesce(k.alloc_ns, p.alloc_ns + 999) AS last_ns,
        CASE
            WHEN k.thread_id IS NOT NULL THEN k.thread_id
            WHEN g.gap_ns > threshold('snapshot_gap_ns') OR s.trace_id IS NOT NULL AND n.allocation_id IS NULL THEN NULL
            WHEN c.n_op_changes > 0 OR c.n_in_ops > 1 THEN NULL
            WHEN c.n_in_ops = 1 THEN c.op_thread
            WHEN c.n_module_changes = 0 AND c.n_in_modules = 1 THEN c.module_thread
        END AS thread_id
    FROM placed AS p
    JOIN candidates AS c ON c.snapshot_id = p.snapshot_id AND c.allocation_id = p.allocation_id
    LEFT JOIN known AS k ON k.snapshot_id = p.snapshot_id AND k.allocation_id = p.allocation_id
    LEFT JOIN near AS n ON n.snapshot_id = p.snapshot_id AND n.allocation_id = p.allocation_id
    LEFT JOIN shown AS s ON s.trace_id = p.trace_id AND s.device = p.device
    LEFT JOIN gaps AS g ON g.snapshot_id = p.snapshot_id AND g.trace_id = p.trace_id
),
-- Then, find the calls open on that thread.
marks AS (
    SELECT
        trace_id, thread_id, kind, event_id, at_ns, turn, by_length, by_place, change,
        CAST(NULL AS VARCHAR) AS snapshot_id, CAST(NULL AS BIGINT) AS allocation_id
    FROM changes
    UNION ALL
    SELECT
        f.trace_id, f.thread_id, r.kind, NULL, CASE WHEN r.is_last THEN f.last_ns ELSE f.first_ns END, 2, 0, 0, 0,
        f.snapshot_id, f.allocation_id
    FROM threads_found AS f
    CROSS JOIN looked_up AS r
    WHERE f.thread_id IS NOT NULL
),
ordered AS (
    SELECT
        trace_id, thread_id, kind, event_id, change, snapshot_id, allocation_id,
        row_number() OVER track AS ordinal,
        sum(change) OVER (track ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_open,
        sum(abs(change)) OVER (track ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_changes
    FROM marks
    WINDOW track AS (PARTITION BY trace_id, thread_id, kind ORDER BY at_ns, turn, by_length, by_place)
),
-- The call open at a depth is the last that reached that depth. This step finds its ordinal, as in _call_operators.
opened AS (
    SELECT
        trace_id, thread_id, kind, change, snapshot_id, allocation_id, n_changes,
        CASE
            WHEN n_open > 0
                THEN max(CASE WHEN change = 1 THEN ordinal END) OVER (
                    PARTITION BY trace_id, thread_id, kind, n_open ORDER BY ordinal
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                )
        END AS innermost
    FROM ordered
    WHERE change >= 0
),
by_kind AS (
    SELECT
        l.snapshot_id, l.allocation_id, l.trace_id, l.kind, min(l.n_changes) = max(l.n_changes) AS is_sure,
        max(c.event_id) AS event_id
    FROM opened AS l
    LEFT JOIN ordered AS c
        ON c.trace_id = l.trace_id AND c.thread_id = l.thread_id AND c.kind = l.kind AND c.ordinal = l.innermost
    WHERE l.change = 0
    GROUP BY l.snapshot_id, l.allocation_id, l.trace_id, l.kind
),
-- If calls of a thread overlap without nesting, this call may already have ended.
owners AS (
    SELECT
        k.snapshot_id, k.allocation_id, k.trace_id,
        max(CASE WHEN k.kind = 'op' THEN k.event_id END) AS op_event_id,
        max(CASE WHEN k.kind = 'module' THEN k.event_id END) AS module_event_id
    FROM by_kind AS k
    JOIN threads_found AS f ON f.snapshot_id = k.snapshot_id AND f.allocation_id = k.allocation_id
    JOIN calls AS c ON c.trace_id = k.trace_id AND c.event_id = k.event_id
    WHERE k.is_sure AND c.start_ns + c.duration_ns > f.last_ns
    GROUP BY k.snapshot_id, k.allocation_id, k.trace_id
),
-- This does not use snapshot_steps. In that table, a step number that a second profiler repeats is one step, from the
-- first mark to the last.
marked AS (
    SELECT
        snapshot_id, TRY_CAST(replace(name, 'ProfilerStep#', '') AS BIGINT) AS step, stage, at_ns,
        lead(stage) OVER by_name AS next_stage,
        lead(at_ns) OVER by_name AS next_ns
    FROM snapshot_annotations
    WHERE starts_with(name, 'ProfilerStep#') AND at_ns > 0
    WINDOW by_name AS (PARTITION BY snapshot_id, name ORDER BY at_ns, place)
),
own_steps AS (
    SELECT DISTINCT snapshot_id FROM marked
),
intervals AS (
    SELECT snapshot_id, step, at_ns AS start_ns, next_ns AS end_ns
    FROM marked
    WHERE stage = 'START' AND next_stage = 'END' AND step IS NOT NULL
    UNION ALL
    SELECT m.snapshot_id, p.step, p.start_ns, p.end_ns
    FROM snapshot_trace_matches AS m
    JOIN profiler_steps AS p ON p.trace_id = m.trace_id
    LEFT JOIN own_steps AS o ON o.snapshot_id = m.snapshot_id
    WHERE o.snapshot_id IS NULL
),
steps AS (
    SELECT a.snapshot_id, a.allocation_id, min(i.step) AS step
    FROM snapshot_allocations AS a
    JOIN intervals AS i ON i.snapshot_id = a.snapshot_id
    WHERE a.alloc_ns >= i.start_ns AND a.alloc_ns < i.end_ns
    GROUP BY a.snapshot_id, a.allocation_id
    HAVING min(i.step) = max(i.step)
),
forwards AS (
    SELECT
        snapshot_id, stack_id, file || coalesce(':' || CAST(line AS VARCHAR), '') || ' ' || function AS frame,
        row_number() OVER (PARTITION BY snapshot_id, stack_id ORDER BY depth) AS place
    FROM snapshot_frames
    WHERE function = 'forward'
)
SELECT
    a.snapshot_id,  -- The snapshot.
    a.allocation_id,  -- The allocation, in snapshot_allocations.
    a.device,  -- Device number.
    a.size_bytes,  -- Requested bytes, before rounding.
    a.alloc_ns,  -- Time of the allocation, ns since the Unix epoch; NULL if the history does not contain it.
    s.step,  -- Step of the allocation; NULL outside of steps, or where steps are ambiguous.
    -- Trace of the same rank that covers the allocation; NULL unless exactly one does.
    p.trace_id,
    o.op_event_id,  -- Innermost open operator, by its position in traceEvents; NULL where it is uncertain.
    c.name AS op,  -- Name of the operator.
    -- Innermost open module on the same thread, as in spans; NULL if there is none (as in the backward pass), if it is
    -- uncertain, or if the trace has no Python frames.
    d.name AS module,
    -- Source of operator and module: memory_event (the trace shows the same allocation) or clock; NULL where both are
    -- unknown.
    CASE
        WHEN o.op_event_id IS NULL AND o.module_event_id IS NULL THEN NULL
        WHEN k.thread_id IS NOT NULL THEN 'memory_event'
        ELSE 'clock'
    END AS source,
    -- 1 for memory_event, 0.7 for clock, which relies on two clocks; NULL where source is NULL.
    CASE
        WHEN o.op_event_id IS NULL AND o.module_event_id IS NULL THEN NULL
        WHEN k.thread_id IS NOT NULL THEN 1e0
        ELSE 7e-1
    END AS confidence,
    -- Time of the allocation in the trace minus its time in the snapshot, ns; 0 to 999 where the clocks agree, because
    -- the snapshot's clock is truncated to the us. NULL where the trace does not show the allocation.
    k.alloc_ns - a.alloc_ns AS clock_gap_ns,
    -- Innermost `forward` in its stack, the code of the allocating module: `file:line function`; NULL without one.
    f.frame AS module_frame,
    t.user_frame  -- Innermost frame of the user's code; NULL without a stack.
FROM snapshot_allocations AS a
LEFT JOIN placed AS p ON p.snapshot_id = a.snapshot_id AND p.allocation_id = a.allocation_id
LEFT JOIN known AS k ON k.snapshot_id = a.snapshot_id AND k.allocation_id = a.allocation_id
LEFT JOIN owners AS o ON o.snapshot_id = a.snapshot_id AND o.allocation_id = a.allocation_id
LEFT JOIN calls AS c ON c.trace_id = o.trace_id AND c.event_id = o.op_event_id
LEFT JOIN calls AS d ON d.trace_id = o.trace_id AND d.event_id = o.module_event_id
LEFT JOIN steps AS s ON s.snapshot_id = a.snapshot_id AND s.allocation_id = a.allocation_id
LEFT JOIN forwards AS f ON f.snapshot_id = a.snapshot_id AND f.stack_id = a.stack_id AND f.place = 1
LEFT JOIN snapshot_stacks AS t ON t.snapshot_id = a.snapshot_id AND t.stack_id = a.stack_id
