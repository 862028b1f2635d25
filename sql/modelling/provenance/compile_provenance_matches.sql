-- One row: torch.compile provenance and a profiler trace of the same process. Provenance without a trace has a row,
-- too.
-- How: the provenance is in the trace's folder or below it. If the process is the same, it may also be elsewhere in the
-- trace's job. Ranks and processes that both record must be equal. Among a trace's candidates, candidates of its
-- process win, then candidates of its rank, then all others.
-- scope: lake
WITH folders AS (
    SELECT trace_id, rank, job, regexp_replace(path, '[/\\][^/\\]*$', '') AS folder FROM traces
),
processes AS (
    SELECT DISTINCT trace_id, TRY_CAST(pid AS BIGINT) AS pid FROM threads WHERE TRY_CAST(pid AS BIGINT) IS NOT NULL
),
without_process AS (
    SELECT f.trace_id, f.rank, f.folder
    FROM folders AS f
    LEFT JOIN processes AS p ON p.trace_id = f.trace_id
    WHERE p.trace_id IS NULL
),
candidates AS (
    SELECT p.provenance_id, f.trace_id, 1 AS way
    FROM compile_provenance AS p
    JOIN processes AS i ON i.pid = p.pid
    JOIN folders AS f ON f.trace_id = i.trace_id
    WHERE (p.rank IS NULL OR f.rank IS NULL OR p.rank = f.rank)
        AND (p.folder = f.folder OR starts_with(p.folder, f.folder || '/') OR p.job = f.job)
    UNION ALL
    SELECT p.provenance_id, f.trace_id, CASE WHEN p.rank = f.rank THEN 2 ELSE 3 END
    FROM compile_provenance AS p
    JOIN folders AS f ON p.folder = f.folder OR starts_with(p.folder, f.folder || '/')
    WHERE p.pid IS NULL AND (p.rank IS NULL OR f.rank IS NULL OR p.rank = f.rank)
    UNION ALL
    SELECT p.provenance_id, f.trace_id, CASE WHEN p.rank = f.rank THEN 2 ELSE 3 END
    FROM compile_provenance AS p
    JOIN without_process AS f ON p.folder = f.folder OR starts_with(p.folder, f.folder || '/')
    WHERE p.pid IS NOT NULL AND (p.rank IS NULL OR f.rank IS NULL OR p.rank = f.rank)
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
    c.trace_id,  -- A trace of the process; NULL if there is none.
    -- Evidence for the match: pid, rank, or folder if the file records neither; NULL without a trace.
    CASE c.way WHEN 1 THEN 'pid' WHEN 2 THEN 'rank' WHEN 3 THEN 'folder' END AS matched_by
FROM compile_provenance AS p
LEFT JOIN chosen AS c ON c.provenance_id = p.provenance_id
