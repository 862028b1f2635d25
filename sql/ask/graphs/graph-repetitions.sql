-- Question: How does the time of each repetition of a graph's block divide into kernel classes?
-- Reading: The `period` kernels of a block follow one another in a graph, probably once per layer (a guess):
-- `repetition` counts from 0. Times are over all replays of the graph. `graph-blocks` compares the repetitions;
-- `graph-layers` shows the layers of all graphs.
SELECT
    coalesce(t.job, t.file) AS job, t.rank, g.sequence_id, g.period, g.repetition, g.class, count(*) AS n,
    CAST(sum(g.duration_ns) AS BIGINT) AS duration_ns
FROM graph_kernels AS g
JOIN traces AS t ON g.trace_id = t.trace_id
WHERE g.period IS NOT NULL
GROUP BY t.trace_id, coalesce(t.job, t.file), t.rank, g.sequence_id, g.period, g.repetition, g.class
ORDER BY job, t.rank, t.trace_id, g.sequence_id, g.repetition, g.class, g.period
