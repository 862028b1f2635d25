-- One row: a call of a kernel in a graph that torch.compile compiled, with what it was made of. Lists are texts, sorted
-- and with commas; compiled_kernel_nodes and compiled_kernel_frames have their parts.
-- scope: compile_provenance
-- check: unique(provenance_id, kernel_id)
SELECT
    CAST(provenance_id AS VARCHAR) AS provenance_id,  -- The log or debug folder.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(kernel_id AS BIGINT) AS kernel_id,  -- Number of the call in the file, from 0.
    CAST(graph AS BIGINT) AS graph,  -- Number of the compiled graph in the file, from 0.
    -- Id of the compilation, as in `Torch-Compiled Region: 0/0`: a forward graph and its backward have the same; NULL
    -- for a debug folder.
    CAST(compile_id AS VARCHAR) AS compile_id,
    -- Same for graphs with the same kernels and nodes: a debug folder and a log may have the same graph.
    CAST(graph_key AS VARCHAR) AS graph_key,
    -- Name of the kernel, as in traces; of library calls `extern_kernels.addmm`, whose kernels have other names.
    CAST(name AS VARCHAR) AS name,
    CAST(handle AS BIGINT) AS handle,  -- Number of the call in its graph, from 1; NULL where the name has none.
    -- Nodes of the graph that it computes; NULL where the file has no node mapping for it, as for backward graphs.
    CAST(n_post_grad_nodes AS BIGINT) AS n_post_grad_nodes,
    CAST(operators AS VARCHAR) AS operators,  -- Operators after which these nodes are called; NULL as without nodes.
    CAST(post_grad_nodes AS VARCHAR) AS post_grad_nodes,  -- These nodes; NULL as without nodes.
    -- Nodes of the graph before autograd and Inductor's passes that they came from; NULL if not recorded.
    CAST(pre_grad_nodes AS VARCHAR) AS pre_grad_nodes,
    -- Innermost source lines that it came from, `file:line function`; NULL where the file has no stack traces.
    CAST(source_lines AS VARCHAR) AS source_lines
FROM _staged_compiled_kernels
