-- One row: a computing kernel, by name, of a device of a trace, and whether its name shows that it uses tensor cores.
-- How: the first rule in rules/tensor_core_kernels.csv that matches the kernel name decides. This is not a measurement:
-- a kernel that uses tensor cores may use them poorly (op_utilization). NULL means unknown, not "no".
-- check: unique(trace_id, device, name)
WITH work AS (
    SELECT trace_id, device, name, count(*) AS n_kernels, sum(duration_ns) AS gpu_ns
    FROM kernels
    WHERE class IN (SELECT d.class FROM class_kinds AS d WHERE d.counts_as = 'COMPUTATION') AND cat = 'kernel'
    GROUP BY trace_id, device, name
),
names AS (
    SELECT DISTINCT name FROM work
),
fitting AS (
    SELECT n.name, r.rule_id, r.uses_tensor_cores
    FROM (SELECT name, first_tensor_core_kernels(name) AS rule_order FROM names) AS n
    JOIN tensor_core_kernels AS r ON r.rule_order = n.rule_order
)
SELECT
    w.trace_id,  -- The trace.
    w.device,  -- The device.
    w.name,  -- Name of the kernel.
    f.uses_tensor_cores,  -- The kernel computes on tensor cores (AMD: matrix cores); NULL if the name does not show it.
    f.rule_id,  -- Rule in tensor_core_kernels that decided; NULL if no rule matches the name.
    w.n_kernels,  -- Number of runs.
    TRY_CAST(w.gpu_ns AS BIGINT) AS gpu_ns  -- Its summed duration, ns.
FROM work AS w
LEFT JOIN fitting AS f ON f.name = w.name
