-- One row: an operator or call of a window with data dependencies, and what the execution trace says about it.
-- How: operators joined to their node; one that returns a value to the host (`aten::item`: Scalar) passes data on that
-- no tensor shows.
WITH windows AS (
    SELECT w.window_no, w.trace_id
    FROM critical_path_windows AS w
    JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
    WHERE p.data_dependencies
),
returned AS (
    SELECT trace_id, node_id, split_part(op_schema, ') -> ', 2) AS result
    FROM execution_nodes
)
SELECT
    w.window_no,  -- The window.
    c.event_id,  -- The operator or call.
    o.node_id AS execution_node_id,  -- Its node in the execution trace; NULL where it was not joined.
    e.cat <> 'cpu_op' AS is_call,  -- A call of the runtime or driver: these keep their order.
    e.cat = 'cpu_op' AND (
        o.node_id IS NULL
        OR coalesce(r.result, '') NOT IN ('', '()') AND NOT contains(r.result, 'Tensor') AND NOT contains(
            r.result, '__torch__'
        )
    ) AS hides_data  -- An operator whose dependencies the execution trace does not show: it stays serial.
FROM windows AS w
JOIN _clip AS c ON c.window_no = w.window_no AND c.is_operator AND c.side = 'cpu'
JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
LEFT JOIN operator_nodes AS o ON o.trace_id = w.trace_id AND o.event_id = c.event_id
LEFT JOIN returned AS r ON r.trace_id = o.trace_id AND r.node_id = o.node_id
