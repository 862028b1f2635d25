-- Question: How much of the GPU's time do replays of CUDA and HIP graphs run, and of how much is the operator known?
-- Reading: One row per trace; `gpu_ns` is NULL without GPU work. `graph_ns` is the part of `gpu_ns` in replays.
-- `known_ns` is the part of `graph_ns` with a known operator or module. Answers by operator or module include only this
-- part (`coverage`).
WITH whole AS (
    SELECT k.trace_id, sum(k.duration_ns) AS gpu_ns
    FROM kernels AS k
    JOIN traces AS t ON k.trace_id = t.trace_id
    GROUP BY k.trace_id
),
replayed AS (
    SELECT
        g.trace_id, count(*) AS n_kernels, count(DISTINCT g.replay_id) AS n_replays, sum(g.duration_ns) AS graph_ns,
        sum(CASE WHEN g.op IS NOT NULL OR g.module IS NOT NULL THEN g.duration_ns ELSE 0 END) AS known_ns
    FROM graph_kernels AS g
    JOIN traces AS t ON g.trace_id = t.trace_id
    GROUP BY g.trace_id
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, CAST(w.gpu_ns AS BIGINT) AS gpu_ns,
    coalesce(r.n_kernels, 0) AS n_kernels,
    coalesce(r.n_replays, 0) AS n_replays, CAST(coalesce(r.graph_ns, 0) AS BIGINT) AS graph_ns,
    CAST(coalesce(r.known_ns, 0) AS BIGINT) AS known_ns
FROM traces AS t
LEFT JOIN whole AS w ON w.trace_id = t.trace_id
LEFT JOIN replayed AS r ON r.trace_id = t.trace_id
ORDER BY graph_ns DESC, gpu_ns DESC, job, t.rank, t.trace_id
