-- One row: a Python frame of a trace, the user's frame that it ran in, and the GPU time that they launched. Only traces
-- with Python frames (with_stack) have rows; theirs add up to the time of all their GPU work.
-- How: the innermost frames open on the launch's thread when it was called. Work of the backward pass has no frame of
-- its own there: it belongs to the frames of its forward operator, as far as the trace links the two.
-- check: unique(trace_id, frame, user_frame, phase)
WITH traced AS (
    SELECT DISTINCT trace_id FROM events WHERE cat = 'python_function' AND duration_ns > 0
),
placed AS (
    SELECT
        k.trace_id, k.duration_ns, k.launch_event_id,
        CASE WHEN o.frame_event_id IS NULL AND b.frame_event_id IS NOT NULL THEN 'backward' ELSE 'launch' END AS phase,
        coalesce(o.frame_event_id, b.frame_event_id) AS frame_event_id,
        CASE
            WHEN o.frame_event_id IS NULL THEN b.user_frame_event_id
            ELSE o.user_frame_event_id
        END AS user_frame_event_id
    FROM kernels AS k
    JOIN traced AS t ON t.trace_id = k.trace_id
    LEFT JOIN _frame_calls AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
    LEFT JOIN _work_contexts AS c ON c.trace_id = k.trace_id AND c.event_id = k.launch_event_id
    LEFT JOIN _frame_calls AS b ON b.trace_id = c.trace_id AND b.event_id = c.forward_event_id
),
reasoned AS (
    SELECT
        trace_id, duration_ns, frame_event_id, user_frame_event_id,
        CASE
            WHEN launch_event_id IS NULL THEN 'no_launch' WHEN frame_event_id IS NULL THEN 'no_frame' ELSE phase
        END AS phase
    FROM placed
),
summed AS (
    SELECT
        trace_id, frame_event_id, user_frame_event_id, phase, count(*) AS n_kernels, sum(duration_ns) AS gpu_ns
    FROM reasoned
    GROUP BY trace_id, frame_event_id, user_frame_event_id, phase
)
SELECT
    s.trace_id,  -- The trace.
    -- Innermost Python frame, `file(line): function`, a built-in function or a module's call; NULL where there is none.
    f.name AS frame,
    -- Innermost frame in a file that is neither PyTorch's nor Python's own (rules in python_frames); NULL where there
    -- is none.
    u.name AS user_frame,
    -- launch: the frames called it; backward: they called the forward operator; no_launch: the launch is not in the
    -- trace; no_frame: its thread had no frame open, and no forward operator with one is known.
    s.phase,
    TRY_CAST(sum(s.n_kernels) AS BIGINT) AS n_kernels,  -- Pieces of GPU work.
    TRY_CAST(sum(s.gpu_ns) AS BIGINT) AS gpu_ns  -- Their summed duration, ns.
FROM summed AS s
LEFT JOIN events AS f ON f.trace_id = s.trace_id AND f.event_id = s.frame_event_id
LEFT JOIN events AS u ON u.trace_id = s.trace_id AND u.event_id = s.user_frame_event_id
GROUP BY s.trace_id, f.name, u.name, s.phase
