-- One row: a call of a kernel in a graph that torch.compile compiled, with its provenance. Lists are sorted texts,
-- separated by commas. compiled_kernel_nodes and compiled_kernel_frames contain their elements.
-- scope: compile_provenance
-- check: unique(provenance_id, kernel_id)
SELECT
    CAST(provenance_id AS VARCHAR) AS provenance_id,  -- The log or debug folder.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(kernel_id AS BIGINT) AS kernel_id,  -- Number of the call in the file, from 0.
    CAST(graph AS BIGINT) AS graph,  -- Number of the compiled graph in the file, from 0.
    -- Id of the compilation, as in `Torch-Compiled Region: 0/0`: a forward graph and its backward share it; NULL for a
    -- debug folder.
    CAST(compile_id AS VARCHAR) AS compile_id,
    -- Key that is equal for graphs with the same kernels and nodes, because a debug folder and a log may contain the
    -- same graph.
    CAST(graph_key AS VARCHAR) AS graph_key,
    -- Name of the kernel, as in traces; for a library call a name like `extern_kernels.addmm`, whose kernels have other
    -- names in traces.
    CAST(name AS VARCHAR) AS name,
    CAST(handle AS BIGINT) AS handle,  -- Number of the call in its graph, from 1; NULL if the name has none.
    -- Number of graph nodes that it computes; NULL if the file has no node mapping for it, as for backward graphs.
    CAST(n_post_grad_nodes AS BIGINT) AS n_post_grad_nodes,
    CAST(operators AS VARCHAR) AS operators,  -- Operators that give these nodes their names; NULL without a mapping.
    CAST(post_grad_nodes AS VARCHAR) AS post_grad_nodes,  -- Graph nodes that it computes; NULL without a mapping.
    -- Graph nodes from which these nodes came, before autograd and Inductor's passes; NULL if not recorded.
    CAST(pre_grad_nodes AS VARCHAR) AS pre_grad_nodes,
    -- Innermost source lines from which it came, `file:line function`; NULL if the file has no stack traces.
    CAST(source_lines AS VARCHAR) AS source_lines
FROM _staged_compiled_kernels
