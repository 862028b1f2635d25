-- Topic: GPU time
-- Question: Where is the GPU idle the longest?
-- Reading: The gaps between busy stretches of a device, longest first. `tracelake overlay` shows what the host did
-- meanwhile.
SELECT
    t.job, t.rank, m.device, round((m.next_ns - m.end_ns) / 1e3, 1) AS gap_us, m.end_ns AS idle_from_ns,
    m.next_ns AS idle_until_ns, m.trace_id
FROM (
    SELECT
        trace_id, device, end_ns, lead(start_ns) OVER (PARTITION BY trace_id, device ORDER BY start_ns) AS next_ns
    FROM merged_intervals
    WHERE scope = 'all'
) AS m
JOIN traces AS t ON m.trace_id = t.trace_id
WHERE m.next_ns > m.end_ns
ORDER BY m.next_ns - m.end_ns DESC, m.trace_id, m.end_ns
