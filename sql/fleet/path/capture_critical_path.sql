-- One row: a segment of the critical path through the ranks of a capture, in order. For each target, the segments tile
-- the time from the first event to the target without gaps or overlaps.
-- How: collectives join the graphs of the ranks' own paths (critical_path_edges). A backward walk from the target
-- follows the binding edges. At the end of a collective, it continues on the rank that arrived last
-- (pipelines/fleet/path).
-- scope: capture
-- check: unique(capture_id, target, seq)
SELECT
    w.capture_id,  -- The capture.
    w.target,  -- End of the path: last_gpu_end, last_collective_end or last_event_end.
    w.seq,  -- Position on the path, from 1.
    w.rank,  -- Rank that the time belongs to.
    -- cpu_op, gpu_kernel, transfer, launch_delay, kernel_delay, cross_stream_wait, sync_return, thread_hand_off, gap
    -- (host thread outside its operators) or head (before the first binding event on the rank).
    w.kind,
    w.start_ns,  -- Start on the clock of the lowest rank, ns.
    w.duration_ns,  -- Duration, ns.
    w.event_id,  -- Event that the segment leads into or is part of.
    w.guessed,  -- True for a wait that is inferred, because no cuda_sync row records it.
    w.trace_id,  -- The rank's trace.
    w.owner_event_id,  -- Event that the time belongs to; NULL if no event owns it.
    e.name,  -- Name of the event that the time belongs to, else of the event that the segment leads into.
    w.collective_id,  -- The collective of a transfer; else NULL.
    -- Display name of the time's owner, as in critical_path: the operator, call or GPU activity. In a gap, it is the
    -- annotation around it, else the module's or user's own Python function, else the thread. A delay or wait is its
    -- own owner.
    CASE
        WHEN w.kind = 'head' THEN 'before the first event of rank ' || CAST(w.rank AS VARCHAR)
        WHEN w.earlier THEN 'earlier work, not in the trace'
        WHEN o.event_id IS NOT NULL THEN o.name
        WHEN w.kind = 'gap' THEN 'outside operators, thread ' || coalesce(h.label, e.tid)
        ELSE
            coalesce(rtrim(t.track_label, ': '), 'wait')
            || coalesce(', stream ' || CAST(e.stream AS VARCHAR), ', thread ' || coalesce(h.label, e.tid), '')
    END AS owner,
    CASE WHEN NOT w.earlier THEN o.cat END AS owner_cat  -- Category of the owner; NULL if the owner is not an event.
FROM _walked_segments AS w
LEFT JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = coalesce(w.owner_event_id, w.event_id)
LEFT JOIN threads AS h ON h.trace_id = e.trace_id AND h.pid = e.pid AND h.tid = e.tid
LEFT JOIN events AS o ON o.trace_id = w.trace_id AND o.event_id = w.shown_event_id
LEFT JOIN edge_types AS t ON t.edge_type = w.edge_type
WHERE w.refused_reason IS NULL
