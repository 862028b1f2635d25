-- Question: Where does the time in graph replays go, by layer and kernel class?
-- Reading: The layer is the repetition of a block of kernels, a guess (NULL: outside of it). `known_percent` is the
-- share of the time with a known operator or module. The rest has no operator in other answers (part `graph` in
-- `coverage`). A trace of the capture, of the warm-up or of the same work without graphs would show the operators:
-- `tracelake graphs TRACE --capture-trace FILE`.
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    g.repetition, g.class,
    count(DISTINCT g.trace_id || ' ' || CAST(g.replay_id AS VARCHAR)) AS n_replays, count(*) AS n_kernels,
    round(sum(g.duration_ns) / 1e6, 3) AS gpu_ms,
    round(
        100 * sum(g.duration_ns)
        / nullif(sum(sum(g.duration_ns)) OVER (PARTITION BY coalesce(t.job, t.trace_id), t.rank), 0), 1
    ) AS percent,
    round(
        100 * sum(CASE WHEN g.op IS NOT NULL OR g.module IS NOT NULL THEN g.duration_ns ELSE 0 END)
        / nullif(sum(g.duration_ns), 0), 1
    ) AS known_percent
FROM graph_kernels AS g
JOIN traces AS t ON g.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, g.repetition, g.class
ORDER BY job, t.rank, sum(g.duration_ns) DESC, g.repetition, g.class, coalesce(t.job, t.trace_id)
