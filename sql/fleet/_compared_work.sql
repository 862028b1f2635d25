-- One row: GPU work of a trace that no comparison tells apart: of one step, operator, shape, module and name.
-- How: the owners of kernel_owners. Work belongs to the step of its launch; where that is not in the trace, to the step
-- in which it started. Its category is the class COMMUNICATION, else the family of its operator, else what
-- rules/kernel_categories.csv says of its name.
-- check: unique(trace_id, step, operator, category, module, input_dims, input_types, cat, name)
WITH names AS (
    SELECT DISTINCT trace_id, cat, name FROM kernels
),
fitting AS (
    SELECT n.trace_id, n.cat, n.name, r.category
    FROM names AS n
    JOIN kernel_categories AS r ON regexp_matches(n.name, r.name_pattern)
    QUALIFY row_number() OVER (PARTITION BY n.trace_id, n.cat, n.name ORDER BY r.rule_order) = 1
),
work AS (
    SELECT
        k.trace_id, k.cat, coalesce(k.name, '(no name)') AS name, k.duration_ns,
        coalesce(l.start_ns, k.start_ns) AS at_ns,
        CASE
            WHEN o.op IS NOT NULL THEN o.op
            WHEN o.is_replay THEN '(graph replay)'
            WHEN l.event_id IS NULL THEN '(launch not in the trace)'
            ELSE '(no operator)'
        END AS operator,
        o.op IS NOT NULL AS has_operator,
        CASE
            WHEN k.class = 'COMMUNICATION' THEN 'communication'
            ELSE coalesce(w.family, f.family, c.category, 'other')
        END AS category,
        coalesce(o.module, '(no module)') AS module,
        w.dims AS input_dims,
        coalesce(p.args ->> '$."Input type"', p.args ->> '$."Input Type"') AS input_types
    FROM kernels AS k
    JOIN kernel_owners AS o ON o.trace_id = k.trace_id AND o.event_id = k.event_id
    LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    LEFT JOIN op_work AS w ON w.trace_id = o.trace_id AND w.event_id = o.op_event_id
    LEFT JOIN events AS p ON p.trace_id = o.trace_id AND p.event_id = o.op_event_id AND p.cat = 'cpu_op'
    LEFT JOIN op_kinds AS f ON f.op = o.op
    LEFT JOIN fitting AS c
        ON c.trace_id = k.trace_id AND c.cat IS NOT DISTINCT FROM k.cat AND c.name IS NOT DISTINCT FROM k.name
)
SELECT
    w.trace_id,  -- The trace.
    s.step,  -- Number of the profiler step; NULL outside of steps.
    w.operator,  -- The operator that launched it itself; in parentheses why there is none.
    w.has_operator,  -- There is an operator.
    w.category,  -- communication, a family of op_kinds (gemm, attention, elementwise, …) or other.
    w.module,  -- Innermost module around the launch; (no module) where there is none.
    w.input_dims,  -- Sizes of the operator's inputs, as JSON; NULL where the trace does not record shapes.
    w.input_types,  -- Types of its inputs, as JSON; NULL where the trace does not record them.
    w.cat,  -- kernel, gpu_memcpy or gpu_memset.
    w.name,  -- Name of the kernel or copy.
    count(*) AS n,  -- How many.
    TRY_CAST(sum(w.duration_ns) AS BIGINT) AS duration_ns  -- Their summed duration, ns.
FROM work AS w
LEFT JOIN _compared_windows AS s
    ON s.trace_id = w.trace_id AND s.step IS NOT NULL AND w.at_ns >= s.start_ns AND w.at_ns < s.end_ns
GROUP BY
    w.trace_id, s.step, w.operator, w.has_operator, w.category, w.module, w.input_dims, w.input_types, w.cat, w.name
