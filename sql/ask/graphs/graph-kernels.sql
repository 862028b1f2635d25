-- Question: Which kernels take the time of graph replays, and which operator or module do they belong to?
-- Reading: One row per rank, kernel and owner. `source` is the source of the owner. Without it, the owner is unknown,
-- and a trace of the capture would show it: `tracelake graphs TRACE --capture-trace FILE`. `n_repetitions` counts the
-- repetitions of a block (layers, a guess) in which the kernel runs.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, g.name, g.class, g.op, g.module, g.source,
    min(g.confidence) AS confidence, count(*) AS n, count(DISTINCT g.repetition) AS n_repetitions,
    CAST(sum(g.duration_ns) AS BIGINT) AS duration_ns
FROM graph_kernels AS g
JOIN traces AS t ON g.trace_id = t.trace_id
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, g.name, g.class, g.op, g.module, g.source
ORDER BY sum(g.duration_ns) DESC, g.name, g.op, g.module, g.source, g.class, job, t.rank, t.trace_id
