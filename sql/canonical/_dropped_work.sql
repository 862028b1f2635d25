-- One row: a piece of GPU work that a profile drops because it was launched in the last profiler step.
-- How: a table of its own rather than a CTE, so that the database knows how few rows it joins.
SELECT
    l.trace_profile_id,  -- The trace as a profile sees it.
    l.gpu_event_id  -- The GPU work.
FROM _last_steps AS st
JOIN _links AS l ON l.trace_profile_id = st.trace_profile_id
JOIN events AS c ON c.trace_id = st.trace_id AND c.event_id = l.launch_event_id
WHERE c.start_ns >= st.last_step_ns
