-- One row: a GPU on which the process worked and whose metrics are in the Nsight Systems export.
-- How: the export maps the process's CUDA devices to GPUs. If it does not, both have the same numbers. A process
-- without GPU work gets all sampled GPUs.
WITH sampled AS (
    SELECT DISTINCT type_id & 255 AS gpu FROM _nsys_samples WHERE type_id IS NOT NULL
),
worked AS (
    SELECT DISTINCT device FROM _nsys_work
),
mapped AS (
    SELECT gpu, min(device) AS device FROM _nsys_devices GROUP BY gpu
),
counts AS (
    SELECT count(DISTINCT t.gpu) AS n_mapped, count(DISTINCT w.device) AS n_worked
    FROM worked AS w
    FULL JOIN mapped AS t ON t.device = w.device
),
numbered AS (
    SELECT s.gpu, CASE WHEN c.n_mapped = 0 THEN s.gpu ELSE t.device END AS device, c.n_worked
    FROM sampled AS s
    CROSS JOIN counts AS c
    LEFT JOIN mapped AS t ON t.gpu = s.gpu
)
SELECT
    n.gpu,  -- Number of the GPU.
    n.device  -- CUDA device of the process.
FROM numbered AS n
LEFT JOIN worked AS w ON w.device = n.device
WHERE w.device IS NOT NULL OR n.n_worked = 0
