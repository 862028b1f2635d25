-- One row: a change in the number of launches on a stream whose work has not started yet.
-- How: _queue in the default profile, where a stream is (device, stream). A launch of a graph counts once on each of
-- its streams.
SELECT
    p.trace_id,  -- The trace.
    s.device,  -- Device.
    s.stream,  -- Stream on the device; NULL for GPU work without a stream.
    q.event_id,  -- The launch call (change 1) or its first GPU work on the stream (change -1).
    q.at_ns,  -- Time of the change, ns.
    CAST(q.change AS BIGINT) AS change,  -- +1 for a launch, -1 for a start.
    q.queue_length  -- Number of launches whose work has not started yet, after this change.
FROM _queue AS q
JOIN _profiles AS p ON p.trace_profile_id = q.trace_profile_id
JOIN streams AS s ON s.trace_id = p.trace_id AND s.stream_id = q.stream_key
WHERE p.profile = 'default'
