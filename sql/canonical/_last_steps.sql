-- One row: a trace whose last profiler step a profile drops, with the start of that step.
-- How: HTA drops the last of several profiler steps and what it launched (2.5).
SELECT
    p.trace_profile_id,  -- The trace as a profile sees it.
    p.trace_id,  -- The trace.
    max(e.start_ns) AS last_step_ns  -- Start of the last step, ns.
FROM _profiles AS p
JOIN events AS e ON e.trace_id = p.trace_id
LEFT JOIN category_sides AS s ON s.cat = e.cat
WHERE
    p.drop_last_step AND e.name LIKE 'ProfilerStep#%' AND regexp_matches(e.name, '^ProfilerStep#[0-9]+')
    AND e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL AND e.cat IS NOT NULL
    AND (coalesce(s.side, 'cpu') <> 'none' OR p.side_by_stream_argument AND e.cat <> 'Trace')
    AND NOT (p.side_by_stream_argument AND coalesce(e.stream, -1) >= 0 AND coalesce(e.correlation, -1) >= 0)
GROUP BY p.trace_profile_id, p.trace_id
HAVING count(DISTINCT e.name) >= 2
