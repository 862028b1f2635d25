-- One row: GPU work of a window that the path covers and work of the window on another stream that it waited for.
-- How: the waits of _kernel_waits and those inside CUDA graphs (_graph_dependencies), which the times do not contradict
-- by more than clocks disagree (10 us). Nothing is inferred for work of a graph of which the trace says what it depends
-- on.
WITH depending AS (
    SELECT w.window_no, d.event_id, d.source_event_id
    FROM _graph_dependencies AS d
    JOIN critical_path_windows AS w ON w.trace_id = d.trace_id AND w.covers_window
    WHERE d.source_event_id IS NOT NULL
),
known AS (
    SELECT DISTINCT window_no, event_id FROM depending
),
waits AS (
    SELECT w.window_no, w.event_id, w.source_event_id, w.is_inferred
    FROM _kernel_waits AS w
    LEFT JOIN known AS d ON d.window_no = w.window_no AND d.event_id = w.event_id
    WHERE w.source_in_window AND NOT w.is_same_stream AND NOT (w.is_inferred AND d.event_id IS NOT NULL)
    UNION
    SELECT window_no, event_id, source_event_id, FALSE FROM depending
),
-- Materialized: DuckDB would join the work that waits with all other work of the window.
waiting AS MATERIALIZED (
    SELECT w.window_no, w.event_id, w.source_event_id, w.is_inferred, k.stream_key, k.start_ns
    FROM waits AS w
    JOIN _kernel_nodes AS k ON k.window_no = w.window_no AND k.event_id = w.event_id
)
SELECT
    w.window_no,  -- The window.
    w.event_id,  -- GPU work that waits.
    w.source_event_id,  -- GPU work that has to end first.
    s.start_ns AS source_start_ns,  -- Its start, ns.
    s.start_ns + s.duration_ns AS source_end_ns,  -- Its end, ns; up to 10 us after the start of the work that waits.
    w.is_inferred  -- Not shown by a cuda_sync row: inferred from calls and timing.
FROM waiting AS w
JOIN _kernel_nodes AS s ON s.window_no = w.window_no AND s.event_id = w.source_event_id
WHERE
    s.covers_window AND s.stream_key <> w.stream_key AND s.start_ns <= w.start_ns
    AND s.start_ns + s.duration_ns <= w.start_ns + 10000
