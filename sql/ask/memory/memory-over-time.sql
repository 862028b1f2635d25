-- Question: How does the memory in use grow and shrink over a trace?
-- Reading: From the profiler's memory events (`profile_memory=True`), in 400 equal intervals of `span_ns`, from a
-- device's first event on. Only intervals with an event have a row. In the intervals after it, memory is as in the
-- `last_` columns. Values are the allocator's totals. If `is_relative`, the trace has no totals, and values are
-- relative to the start.
-- Words: OOM, out of memory, leak
WITH events_of AS (
    SELECT
        m.trace_id, m.device_type, m.device, m.seq, m.at_ns, m.net_bytes, m.allocated_bytes, m.reserved_bytes
    FROM memory_timeline AS m
    JOIN traces AS t ON m.trace_id = t.trace_id
),
devices AS (
    SELECT
        trace_id, device_type, device, min(at_ns) AS start_ns, max(at_ns) - min(at_ns) AS span_ns,
        max(allocated_bytes) IS NULL AS is_relative
    FROM events_of
    GROUP BY trace_id, device_type, device
),
placed AS (
    SELECT
        d.*, m.seq, CASE WHEN d.is_relative THEN m.net_bytes ELSE m.allocated_bytes END AS used_bytes,
        m.reserved_bytes, (m.at_ns - d.start_ns) * 400 // (d.span_ns + 1) AS stretch
    FROM events_of AS m
    JOIN devices AS d
        ON m.trace_id = d.trace_id AND m.device_type IS NOT DISTINCT FROM d.device_type
            AND m.device IS NOT DISTINCT FROM d.device
),
most AS (
    SELECT
        trace_id, device_type, device, span_ns, is_relative, stretch, max(used_bytes) AS most_bytes,
        max(reserved_bytes) AS most_reserved_bytes, max(CASE WHEN used_bytes IS NOT NULL THEN seq END) AS used_seq,
        max(CASE WHEN reserved_bytes IS NOT NULL THEN seq END) AS reserved_seq
    FROM placed
    GROUP BY trace_id, device_type, device, span_ns, is_relative, stretch
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, m.device_type, m.device, m.stretch, m.most_bytes,
    u.used_bytes AS last_bytes,
    m.most_reserved_bytes, r.reserved_bytes AS last_reserved_bytes, m.is_relative, m.span_ns
FROM most AS m
JOIN traces AS t ON m.trace_id = t.trace_id
LEFT JOIN placed AS u
    ON u.trace_id = m.trace_id AND u.device_type IS NOT DISTINCT FROM m.device_type
        AND u.device IS NOT DISTINCT FROM m.device AND u.seq = m.used_seq
LEFT JOIN placed AS r
    ON r.trace_id = m.trace_id AND r.device_type IS NOT DISTINCT FROM m.device_type
        AND r.device IS NOT DISTINCT FROM m.device AND r.seq = m.reserved_seq
ORDER BY job, t.rank, m.trace_id, m.device_type, m.device, m.stretch
