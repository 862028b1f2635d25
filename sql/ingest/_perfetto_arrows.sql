-- One row: an end of an arrow of a Perfetto trace. An arrow starts at the first event that names it.
WITH starts AS (
    SELECT n, at_ns, start_ns, flows, ended_flows
    FROM _perfetto_rows
    WHERE
        len(flows) + len(ended_flows) > 0
        -- An end event that has its begin is no event of its own.
        AND (ph <> 'E' OR n IN (SELECT p.end_n FROM _perfetto_pairs AS p WHERE p.begin_n IS NULL))
),
flow_ends AS (
    SELECT n, at_ns, start_ns, unnest(flows) AS flow, FALSE AS is_end FROM starts
    UNION ALL
    SELECT n, at_ns, start_ns, unnest(ended_flows), TRUE FROM starts
)
SELECT
    n,  -- Row in _perfetto_rows that it is at.
    at_ns,  -- Its start, as there.
    flow,  -- Joins the ends.
    -- s start, f end.
    CASE WHEN row_number() OVER (PARTITION BY flow ORDER BY is_end, start_ns, n) = 1 THEN 's' ELSE 'f' END AS ph
FROM flow_ends
