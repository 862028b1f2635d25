-- Question: Which block of kernels repeats in a graph, and how long does each repetition take?
-- Reading: In replays of CUDA and HIP graphs, `period` kernels follow one another `n_repetitions` times, probably once
-- per layer. This is a guess from names and grids. `longest` is the number, from 0, of the repetition that took longest
-- in a replay. `sequence_id` is the same for all replays of a graph.
WITH passed AS (
    SELECT
        t.trace_id, coalesce(t.job, t.file) AS job, t.rank, g.sequence_id, g.period, g.replay_id, g.repetition,
        sum(g.duration_ns) AS gpu_ns
    FROM graph_kernels AS g
    JOIN traces AS t ON g.trace_id = t.trace_id
    WHERE g.period IS NOT NULL
    GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, g.sequence_id, g.period, g.replay_id, g.repetition
    HAVING count(*) = g.period
),
ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY trace_id, sequence_id, period ORDER BY gpu_ns DESC, repetition, replay_id
        ) AS place
    FROM passed
)
SELECT
    job, rank, sequence_id, period, count(DISTINCT repetition) AS n_repetitions, median(gpu_ns) AS median_ns,
    CAST(max(gpu_ns) AS BIGINT) AS longest_ns, max(CASE WHEN place = 1 THEN repetition END) AS longest, trace_id
FROM ranked
GROUP BY trace_id, job, rank, sequence_id, period
ORDER BY sum(gpu_ns) DESC, job, rank, trace_id, sequence_id, period
