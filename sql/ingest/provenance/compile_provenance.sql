-- One row: what torch.compile says its kernels were made of: the log of a process (TORCH_TRACE), or the debug folder of
-- one graph. This table is the commit mark of provenance: rows of the other tables of compiled kernels count only where
-- their file is here.
-- scope: compile_provenance
-- key: provenance_id
-- check: unique(provenance_id)
SELECT
    -- First 16 hex digits of the SHA-256 of a log's first line, which stays as it grows, or of the folder and what its
    -- files hold: those of all ranks hold the same.
    CAST(provenance_id AS VARCHAR) AS provenance_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- The file; of a debug folder the first.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- Its name without the folder.
    regexp_replace(CAST(path AS VARCHAR), '[/\\][^/\\]*$', '') AS folder,  -- Its folder.
    -- log: has all graphs of the process; debug_folder: of one graph, and not every graph has one.
    CAST(source AS VARCHAR) AS source,
    CAST(rank AS BIGINT) AS rank,  -- Rank in the log, else in its name; NULL where neither says.
    CAST(pid AS BIGINT) AS pid,  -- Process, from the log or the folder's name; NULL where neither says.
    CAST(job AS VARCHAR) AS job,  -- Job name, given at ingestion or from the path; NULL when unknown.
    CAST(n_graphs AS BIGINT) AS n_graphs,  -- Compiled graphs with kernels.
    CAST(n_kernels AS BIGINT) AS n_kernels,  -- Calls of kernels in them.
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Bytes, when it was read.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- When it was ingested, UTC.
FROM _staged_compile_provenance
