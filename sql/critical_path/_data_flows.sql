-- One row: an operator that needs what another operator on its thread produced or read, in a window with data
-- dependencies.
-- How: the execution trace's edges between free operators that ended and started in that order; a need shared with an
-- operator around the consumer is counted for that outer operator only.
WITH flows AS (
    SELECT
        made.window_no, made.thread_id, made.event_id AS src_event_id, needs.event_id AS dst_event_id,
        needs.parent_event_id, needs.ordinal, needs.last_node_id = made.node_id AS is_next
    FROM execution_edges AS x
    JOIN critical_path_windows AS w ON w.trace_id = x.trace_id
    JOIN _data_order AS made
        ON made.window_no = w.window_no AND made.execution_node_id = x.producer_id AND made.change = -1 AND made.is_free
    JOIN _data_order AS needs
        ON needs.window_no = w.window_no AND needs.execution_node_id = x.consumer_id AND needs.change = 1
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
