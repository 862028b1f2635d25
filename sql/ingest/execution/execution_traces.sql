-- One row: an execution trace (PyTorch's ExecutionTraceObserver, Chakra) ingested with profiler traces. It has no
-- times, so it is not in traces. Its nodes stay in the file, from which `--dependencies data` reads them. This table is
-- the commit marker of execution traces.
-- scope: execution
-- key: execution_trace_id
-- check: unique(execution_trace_id)
SELECT
    -- First 16 hex digits of the SHA-256 of the decompressed content.
    CAST(execution_trace_id AS VARCHAR) AS execution_trace_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- Path of the file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- File name without the folder.
    regexp_replace(CAST(path AS VARCHAR), '[/\\][^/\\]*$', '') AS folder,  -- Its folder.
    CAST(rank AS BIGINT) AS rank,  -- Rank in the file name, else the last number in it; NULL if it has none.
    CAST(job AS VARCHAR) AS job,  -- Job name, set at ingestion or taken from the path; NULL if unknown.
    CAST(pid AS BIGINT) AS pid,  -- Id of the observed process; NULL if the file does not record it.
    CAST(schema_version AS VARCHAR) AS schema_version,  -- Schema version; NULL if the file does not record it.
    CAST(n_nodes AS BIGINT) AS n_nodes,  -- Number of nodes.
    -- Number of nodes that are operators or annotations, not processes or threads.
    CAST(n_operators AS BIGINT) AS n_operators,
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Size of the decompressed content, bytes.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- Time of ingestion, UTC.
FROM _staged_execution_traces
