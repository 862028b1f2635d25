-- One row: a node of a CPU thread in a window with data dependencies, with the nodes that still bound it in time.
-- How: an operator is free when neither it nor an operator inside it hides data; one that is not free keeps its place
-- among its neighbors.
-- Free neighbors lie between two bounds: before them, the start of the enclosing operator or the end of the last
-- operator that is not free; after them, likewise.
WITH nodes AS (
    SELECT
        s.thread_key, s.ordinal, s.event_id, s.change, s.parent_event_id,
        s.event_id * 2 + CASE WHEN s.change = 1 THEN 0 ELSE 1 END AS node_id,
        o.execution_node_id, o.is_call, o.hides_data,
        lag(s.event_id * 2 + CASE WHEN s.change = 1 THEN 0 ELSE 1 END) OVER thread AS last_node_id,
        sum(s.change) OVER (thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS open_after,
        sum(CASE WHEN s.change = 1 AND o.hides_data THEN 1 ELSE 0 END) OVER (
            thread ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_hiding
    FROM _data_operators AS o
    JOIN _stack_order AS s ON s.thread_key // 1048576 = o.window_no AND s.event_id = o.event_id
    WINDOW thread AS (PARTITION BY s.thread_key ORDER BY s.ordinal)
),
judged AS (
    SELECT
        *,
        NOT is_call AND NOT hides_data
        AND max(n_hiding) OVER (PARTITION BY thread_key, event_id)
        = min(n_hiding) OVER (PARTITION BY thread_key, event_id) AS is_free
    FROM nodes
),
-- Each node belongs to two levels: to that of its neighbors, and to that of what it contains, at its edge.
levels AS (
    SELECT
        *, open_after - CASE WHEN change = 1 THEN 1 ELSE 0 END AS level, FALSE AS is_around,
        NOT is_free AND change = -1 AS is_lower, NOT is_free AND change = 1 AS is_upper
    FROM judged
    UNION ALL
    SELECT *, open_after + CASE WHEN change = 1 THEN 0 ELSE 1 END, TRUE, change = 1, change = -1
    FROM judged
),
bounded AS (
    SELECT
        *,
        last_value(CASE WHEN is_lower THEN node_id END IGNORE NULLS) OVER (
            PARTITION BY thread_key, level ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS lower_node_id,
        last_value(CASE WHEN is_upper THEN ordinal END IGNORE NULLS) OVER (
            PARTITION BY thread_key, level ORDER BY ordinal DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS upper_place
    FROM levels
)
SELECT
    thread_key // 1048576 AS window_no,  -- The window; thread_key is 2^20 times it, plus the thread (_stack_order).
    thread_key % 1048576 AS thread_id,  -- The thread.
    ordinal,  -- Place on the thread.
    event_id,  -- The operator or call entered or left.
    change,  -- 1 for entering, -1 for leaving.
    parent_event_id,  -- For entering: the event around it.
    node_id,  -- Twice the event, plus 1 for its end.
    last_node_id,  -- The node before it on the thread.
    execution_node_id,  -- Its node in the execution trace; NULL where it was not joined.
    is_call,  -- A call of the runtime or driver.
    is_free,  -- Among its neighbors, only data orders it.
    lower_node_id,  -- The node that it follows regardless of data; NULL where nothing bounds it.
    upper_place  -- Place of the node that follows it regardless of data; NULL likewise.
FROM bounded
WHERE NOT is_around
