-- One row: the name of a torch.compile kernel that ran in a trace, with the operators, graph nodes and source lines
-- that the kernel was compiled from.
-- How: by name, in the provenance of the trace's process. Each compiled graph numbers its kernels from the start, so
-- several graphs may share a name, and the trace does not record which of them ran. So operators and source lines are
-- set only if all these graphs agree. Nodes are NULL, because each graph numbers them from the start, too. Only graphs
-- in the provenance are compared.
-- scope: lake
WITH matched AS (
    SELECT
        m.trace_id, min(m.matched_by) AS matched_by, count(CASE WHEN p.source = 'log' THEN 1 END) AS n_logs
    FROM compile_provenance_matches AS m
    JOIN compile_provenance AS p ON p.provenance_id = m.provenance_id
    WHERE m.trace_id IS NOT NULL
    GROUP BY m.trace_id
),
calls AS (
    SELECT k.trace_id, 'gpu' AS side, k.name, k.duration_ns
    FROM kernels AS k
    JOIN matched AS m ON m.trace_id = k.trace_id
    WHERE k.cat = 'kernel'
    UNION ALL
    SELECT e.trace_id, 'cpu', regexp_replace(e.name, '^graph_[0-9]+_', ''), e.duration_ns
    FROM events AS e
    JOIN matched AS m ON m.trace_id = e.trace_id
    WHERE e.cat = 'cpu_op' AND e.duration_ns IS NOT NULL AND regexp_matches(e.name, '^(graph_[0-9]+_)?cpp_')
),
work AS (
    SELECT trace_id, side, name, count(*) AS n_calls, TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns
    FROM calls
    GROUP BY trace_id, side, name
),
-- A call in several files counts once. A field missing from one file may come from another file.
merged AS (
    SELECT
        m.trace_id, k.name, k.graph_key, k.handle,
        CASE WHEN min(k.operators) = max(k.operators) THEN min(k.operators) END AS operators,
        CASE WHEN min(k.post_grad_nodes) = max(k.post_grad_nodes) THEN min(k.post_grad_nodes) END AS post_grad_nodes,
        CASE WHEN min(k.pre_grad_nodes) = max(k.pre_grad_nodes) THEN min(k.pre_grad_nodes) END AS pre_grad_nodes,
        CASE WHEN min(k.source_lines) = max(k.source_lines) THEN min(k.source_lines) END AS source_lines
    FROM compile_provenance_matches AS m
    JOIN compiled_kernels AS k ON k.provenance_id = m.provenance_id
    WHERE m.trace_id IS NOT NULL
    GROUP BY m.trace_id, k.name, k.graph_key, k.handle
),
named AS (
    SELECT
        trace_id, name, count(*) AS n_entries, count(DISTINCT graph_key) AS n_graphs,
        CASE WHEN count(operators) = count(*) AND min(operators) = max(operators) THEN min(operators) END AS operators,
        CASE WHEN count(*) = 1 THEN min(post_grad_nodes) END AS post_grad_nodes,
        CASE WHEN count(*) = 1 THEN min(pre_grad_nodes) END AS pre_grad_nodes,
        CASE
            WHEN count(source_lines) = count(*) AND min(source_lines) = max(source_lines) THEN min(source_lines)
        END AS source_lines
    FROM merged
    GROUP BY trace_id, name
)
SELECT
    w.trace_id,  -- The trace.
    w.name,  -- Name of the kernel, without the prefix `graph_0_` that CPU kernels have in traces.
    w.side,  -- gpu, or cpu for C++ kernels, which traces contain only with `cpp.enable_kernel_profile`.
    w.n_calls,  -- Calls in the trace.
    w.duration_ns,  -- Summed duration of the calls, ns.
    -- Calls with this name in the compiled graphs; 0 if the provenance has none.
    coalesce(n.n_entries, 0) AS n_entries,
    coalesce(n.n_graphs, 0) AS n_graphs,  -- Distinct compiled graphs with such calls.
    -- Operators that the kernel computes, comma-separated; NULL if not recorded, or if graphs or calls disagree.
    n.operators,
    n.post_grad_nodes,  -- Nodes of the compiled graph; NULL if not recorded, or with several entries.
    n.pre_grad_nodes,  -- Nodes before autograd and Inductor's passes; NULL if not recorded, or with several entries.
    n.source_lines,  -- Innermost source lines, `file:line function`; NULL if not recorded, or if entries disagree.
    m.matched_by,  -- As in compile_provenance_matches: pid, rank or folder.
    -- 1: one entry in the log of the trace's process or rank; 0.9: several entries that agree; 0.7: no log but debug
    -- folders, where other graphs with the name may be missing, or a file that records neither process nor rank. These
    -- values are a ranking, not probabilities. NULL where both operators and source lines are unknown.
    CASE
        WHEN n.operators IS NULL AND n.source_lines IS NULL THEN NULL
        WHEN m.matched_by = 'folder' OR m.n_logs = 0 THEN 7e-1
        WHEN n.n_entries > 1 THEN 9e-1
        ELSE 1e0
    END AS confidence
FROM work AS w
JOIN matched AS m ON m.trace_id = w.trace_id
LEFT JOIN named AS n ON n.trace_id = w.trace_id AND n.name = w.name
WHERE n.name IS NOT NULL OR w.side = 'cpu' OR regexp_matches(w.name, '^triton_[a-z]+_fused')
