-- One row: a graph node that a compiled kernel computes, and the node from which it came, before autograd and
-- Inductor's passes.
-- scope: compile_provenance
-- check: unique(provenance_id, kernel_id, post_grad_node, pre_grad_node)
SELECT
    CAST(provenance_id AS VARCHAR) AS provenance_id,  -- The log or debug folder.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(kernel_id AS BIGINT) AS kernel_id,  -- Call of the kernel, in compiled_kernels.
    CAST(name AS VARCHAR) AS name,  -- Name of the kernel.
    CAST(post_grad_node AS VARCHAR) AS post_grad_node,  -- Node that the kernel computes.
    -- Operator that gives the node its name: the name without number and `_default`.
    CAST(operator AS VARCHAR) AS operator,
    CAST(pre_grad_node AS VARCHAR) AS pre_grad_node  -- Node from which it came; NULL if not recorded.
FROM _staged_compiled_kernel_nodes
