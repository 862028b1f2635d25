-- One row: an event of an Nsight Systems export and its number.
-- How: by time; calls in their order, and what encloses first.
SELECT
    row_number() OVER (
        ORDER BY
            e.place > 0, e.start_ns NULLS FIRST, e.place, e.correlation NULLS FIRST, e.end_ns DESC NULLS FIRST,
            e.device, e.stream, e.thread, e.graph_node, e.name, e.args
    ) - 1 AS event_id,  -- Number of the event.
    e.rowid AS n,  -- Its row.
    e.at_ns  -- Its start, as there.
FROM _nsys_rows AS e
