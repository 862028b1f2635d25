-- One row: an operator that needs what another operator on its thread produced or read, in a window with data
-- dependencies.
-- How: the execution trace's edges between free operators that ended and started in that order; a need shared with an
-- operator around the consumer is counted for that outer operator only.
-- Materialized, as in _call_waits: DuckDB may otherwise join each edge with each window of its trace first.
WITH ends AS MATERIALIZED (
    SELECT w.trace_id, d.window_no, d.thread_id, d.event_id, d.node_id, d.execution_node_id, d.ordinal
    FROM _data_order AS d
    JOIN critical_path_windows AS w ON w.window_no = d.window_no
    WHERE d.change = -1 AND d.is_free
),
made AS MATERIALIZED (
    SELECT e.window_no, e.thread_id, e.event_id, e.node_id, e.ordinal, x.consumer_id
    FROM execution_edges AS x
    JOIN ends AS e ON e.trace_id = x.trace_id AND e.execution_node_id = x.producer_id
),
flows AS (
    SELECT
        made.window_no, made.thread_id, made.event_id AS src_event_id, needs.event_id AS dst_event_id,
        needs.parent_event_id, needs.ordinal, needs.last_node_id = made.node_id AS is_next
    FROM made
    JOIN _data_order AS needs
        ON needs.window_no = made.window_no AND needs.execution_node_id = made.consumer_id AND needs.change = 1
            AND needs.is_free
            AND needs.thread_id = made.thread_id AND needs.ordinal > made.ordinal
)
SELECT
    f.window_no,  -- The window.
    f.thread_id,  -- The thread.
    f.src_event_id,  -- The operator that has to end first.
    f.dst_event_id,  -- The operator that needs it.
    f.ordinal,  -- Place of its start on the thread.
    f.is_next  -- Nothing lies between them, so the serial edge already is the dependency.
FROM flows AS f
LEFT JOIN flows AS around
    ON around.window_no = f.window_no AND around.src_event_id = f.src_event_id
        AND around.dst_event_id = f.parent_event_id
WHERE around.window_no IS NULL
