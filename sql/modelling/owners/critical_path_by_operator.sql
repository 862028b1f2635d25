-- One row: an operator, module and layer whose GPU work has time on the critical path of a window. Work without any
-- known owner has a row, too, so that the rows add up to the time of GPU work on the path.
-- How: the GPU work on the path, joined with kernel_owners. For graph replays, the owners come from the capture.
-- check: unique(trace_id, window_id, op, module, layer, source, is_replay)
SELECT
    p.trace_id,  -- The trace.
    p.window_id,  -- The window.
    o.op,  -- Name of the operator; NULL where it is unknown.
    o.module,  -- Innermost module; NULL where it is unknown.
    o.layer,  -- Number of the repeating block in the replay, from 0; NULL outside of graphs.
    o.source,  -- launch, annotation, capture, eager or repetition, as in kernel_owners; NULL where nothing is known.
    min(o.confidence) AS confidence,  -- As in kernel_owners; NULL where nothing is known.
    o.is_replay,  -- True if a replay of a CUDA or HIP graph ran the work.
    count(*) AS n_events,  -- GPU activities on the path.
    TRY_CAST(sum(p.duration_ns) AS BIGINT) AS duration_ns  -- Time of these activities on the path, ns.
FROM _path_by_event AS p
JOIN kernel_owners AS o ON o.trace_id = p.trace_id AND o.event_id = p.attributed_event_id
GROUP BY p.trace_id, p.window_id, o.op, o.module, o.layer, o.source, o.is_replay
