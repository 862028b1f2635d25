-- One row: a frame (a source line of the program) of a stack from which a compiled kernel came.
-- scope: compile_provenance
-- check: unique(provenance_id, kernel_id, stack, depth)
SELECT
    CAST(provenance_id AS VARCHAR) AS provenance_id,  -- The log or debug folder.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(kernel_id AS BIGINT) AS kernel_id,  -- Call of the kernel, in compiled_kernels.
    CAST(name AS VARCHAR) AS name,  -- Name of the kernel.
    CAST(stack AS BIGINT) AS stack,  -- Number of the stack, from 0: a fused kernel may come from several.
    CAST(depth AS BIGINT) AS depth,  -- Depth in the stack; 0 is the innermost frame.
    CAST(file AS VARCHAR) AS file,  -- Source file.
    CAST(line AS BIGINT) AS line,  -- Line.
    CAST(function AS VARCHAR) AS function,  -- Function.
    CAST(code AS VARCHAR) AS code  -- Text of the line; NULL if the source was not available.
FROM _staged_compiled_kernel_frames
