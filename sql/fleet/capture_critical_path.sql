-- One row: a segment of the critical path through the ranks of a capture, in order. For each target, the segments tile
-- the time from the first event to the target without gaps or overlaps.
-- How: the ranks' graphs are joined by their collectives and walked backward along whatever was binding; at the end of
-- a collective, on to the rank that arrived last (pipelines/fleet/path).
-- scope: capture
-- check: unique(capture_id, target, seq)
SELECT
    w.capture_id,  -- The capture.
    w.target,  -- What the path ends with: last_gpu_end, last_collective_end or last_event_end.
    w.seq,  -- Place on the path, from 1.
    w.rank,  -- Rank that the time belongs to.
    -- cpu_op, gpu_kernel, transfer, launch_delay, kernel_delay, cross_stream_wait, sync_return, thread_hand_off, gap
    -- (nothing known) or head (before the first event that binds on the rank).
    w.kind,
    w.start_ns,  -- Start on the clock of the lowest rank, ns.
    w.duration_ns,  -- Duration, ns.
    w.event_id,  -- The event that the segment leads into or is part of.
    w.guessed,  -- The hop is a guess, because the trace has no cuda_sync rows to tell.
    w.trace_id,  -- The rank's trace.
    w.owner_event_id,  -- Event that the time belongs to; NULL where it belongs to none.
    e.name,  -- Name of the event that the time belongs to, else of the one that it leads into.
    w.collective_id  -- The collective of a transfer; else NULL.
FROM _walked_segments AS w
LEFT JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = coalesce(w.owner_event_id, w.event_id)
WHERE w.refused_reason IS NULL
