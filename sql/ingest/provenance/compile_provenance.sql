-- One row: a source of the provenance of torch.compile's kernels: the log of a process (TORCH_TRACE), or the debug
-- folder of one graph. This table is the commit marker of provenance: rows of the other tables of compiled kernels
-- count only if their source is in it.
-- scope: compile_provenance
-- key: provenance_id
-- check: unique(provenance_id)
SELECT
    -- First 16 hex digits of a SHA-256: for a log, of its first line, which does not change as the log grows; for a
    -- debug folder, of the folder's path.
    CAST(provenance_id AS VARCHAR) AS provenance_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- Path of the file; for a debug folder, of its first file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- File name without the folder.
    regexp_replace(CAST(path AS VARCHAR), '[/\\][^/\\]*$', '') AS folder,  -- Its folder.
    -- log (contains all graphs of the process) or debug_folder (contains one graph; not every graph has a folder).
    CAST(source AS VARCHAR) AS source,
    CAST(rank AS BIGINT) AS rank,  -- Rank in the log, else in its name; NULL if in neither.
    CAST(pid AS BIGINT) AS pid,  -- Process id, from the log or the folder's name; NULL if in neither.
    CAST(job AS VARCHAR) AS job,  -- Job name, set at ingestion or taken from the path; NULL if unknown.
    CAST(n_graphs AS BIGINT) AS n_graphs,  -- Number of compiled graphs with kernels.
    CAST(n_kernels AS BIGINT) AS n_kernels,  -- Number of kernel calls in these graphs.
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Size when it was read, bytes.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- Time of ingestion, UTC.
FROM _staged_compile_provenance
