-- One row: provenance of torch.compile and a profiler trace of the same process. One without a trace has a row, too.
-- How: in the trace's folder or below it, or, where the process is the same, in its job. No rank or process that both
-- know may differ. Of a trace's candidates those of its process count, else those of its rank, else the others.
-- scope: lake
WITH folders AS (
    SELECT trace_id, rank, job, regexp_replace(path, '[/\\][^/\\]*$', '') AS folder FROM traces
),
processes AS (
    SELECT DISTINCT trace_id, TRY_CAST(pid AS BIGINT) AS pid FROM threads WHERE TRY_CAST(pid AS BIGINT) IS NOT NULL
),
counted AS (
    SELECT trace_id, count(*) AS n FROM processes GROUP BY trace_id
),
near AS (
    SELECT
        p.provenance_id, f.trace_id, p.pid, p.rank = f.rank AS is_same_rank,
        p.folder = f.folder OR starts_with(p.folder, f.folder || '/') AS is_below
    FROM compile_provenance AS p
    JOIN folders AS f ON p.folder = f.folder OR starts_with(p.folder, f.folder || '/') OR p.job = f.job
    WHERE p.rank IS NULL OR f.rank IS NULL OR p.rank = f.rank
),
candidates AS (
    SELECT
        n.provenance_id, n.trace_id,
        CASE
            WHEN i.pid IS NOT NULL THEN 1
            WHEN n.pid IS NOT NULL AND c.n > 0 OR NOT n.is_below THEN NULL
            WHEN n.is_same_rank THEN 2
            ELSE 3
        END AS way
    FROM near AS n
    LEFT JOIN processes AS i ON i.trace_id = n.trace_id AND i.pid = n.pid
    LEFT JOIN counted AS c ON c.trace_id = n.trace_id
),
best AS (
    SELECT trace_id, min(way) AS way FROM candidates GROUP BY trace_id
),
chosen AS (
    SELECT c.provenance_id, c.trace_id, c.way
    FROM candidates AS c
    JOIN best AS b ON b.trace_id = c.trace_id AND b.way = c.way
)
SELECT
    p.provenance_id,  -- The log or debug folder, in compile_provenance.
    c.trace_id,  -- A trace of the process; NULL where there is none.
    -- pid (the trace has events of the process), rank, or folder (the file says neither); NULL where there is no trace.
    CASE c.way WHEN 1 THEN 'pid' WHEN 2 THEN 'rank' WHEN 3 THEN 'folder' END AS matched_by
FROM compile_provenance AS p
LEFT JOIN chosen AS c ON c.provenance_id = p.provenance_id
