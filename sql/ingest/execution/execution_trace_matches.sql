-- One row: an execution trace and the profiler trace with which `--dependencies data` reads it. An execution trace
-- without a profiler trace in the lake has one row, too.
-- How: in the folder of the profiler trace, take the only execution trace with its rank in the name. Otherwise take the
-- only one without a number. If the profiler trace has neither a rank nor a number, take the only execution trace in
-- the folder.
-- scope: lake
WITH numbered AS (
    SELECT
        trace_id, regexp_replace(path, '[/\\][^/\\]*$', '') AS folder,
        coalesce(
            rank, TRY_CAST(nullif(regexp_extract(split_part(file, '.json', 1), '([0-9]+)[^0-9]*$', 1), '') AS BIGINT)
        ) AS number
    FROM traces
),
candidates AS (
    SELECT
        n.trace_id, e.execution_trace_id,
        CASE WHEN e.rank = n.number THEN 1 WHEN e.rank IS NULL THEN 2 WHEN n.number IS NULL THEN 3 END AS way
    FROM numbered AS n
    JOIN execution_traces AS e ON e.folder = n.folder
),
best AS (
    SELECT trace_id, min(way) AS way FROM candidates GROUP BY trace_id
),
chosen AS (
    SELECT c.trace_id, min(c.execution_trace_id) AS execution_trace_id, min(c.way) AS way
    FROM candidates AS c
    JOIN best AS b ON b.trace_id = c.trace_id AND b.way = c.way
    GROUP BY c.trace_id
    HAVING count(*) = 1
)
SELECT
    e.execution_trace_id,  -- The execution trace, in execution_traces.
    e.path,  -- Path of its file.
    e.rank,  -- Rank in the file name; NULL if it has none.
    c.trace_id,  -- The profiler trace; NULL if there is none, or if several execution traces match.
    -- rank, no_rank (a file without a number) or only_one; NULL without a profiler trace.
    CASE c.way WHEN 1 THEN 'rank' WHEN 2 THEN 'no_rank' WHEN 3 THEN 'only_one' END AS matched_by
FROM execution_traces AS e
LEFT JOIN chosen AS c ON c.execution_trace_id = e.execution_trace_id
