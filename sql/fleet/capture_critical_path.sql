-- One row: a segment of the critical path through the ranks of a capture, in order; for each target the segments tile the time from the first event to it.
-- How: the ranks' graphs joined by their collectives, walked backward along what bound; at the end of a collective to the last rank that arrived (pipelines/fleet/path).
-- scope: capture
-- check: unique(capture_id, target, seq)
SELECT
    w.capture_id,  -- The capture.
    w.target,  -- What the path ends with: last_gpu_end, last_collective_end or last_event_end.
    w.seq,  -- Place on the path, from 1.
    w.rank,  -- The rank whose time it is.
    w.kind,  -- cpu_op, gpu_kernel, transfer, launch_delay, kernel_delay, cross_stream_wait, sync_return, thread_hand_off, gap (nothing known) or head (before the first event that binds on the rank).
    w.start_ns,  -- Start on the clock of the lowest rank, ns.
    w.dur_ns,  -- Duration, ns.
    w.event_id,  -- The event that the segment leads into or is part of.
    w.guessed,  -- The hop is a guess: the trace has no cuda_sync rows that would tell.
    w.trace_id,  -- The rank's trace.
    w.owner_event_id,  -- The event whose time it is; NULL where it is nobody's.
    e.name,  -- Name of the event whose time it is, else of the one that it leads into.
    w.collective_id  -- Of a transfer: the collective; else NULL.
FROM _walked_segments AS w
LEFT JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = coalesce(w.owner_event_id, w.event_id)
WHERE w.refused IS NULL
