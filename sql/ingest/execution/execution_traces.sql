-- One row: an execution trace (PyTorch's ExecutionTraceObserver, Chakra) that was found with profiler traces. It has no
-- times, so it is not in traces; its nodes stay in the file, where `--dependencies data` reads them. This table is the
-- commit mark of execution traces.
-- scope: execution
-- key: execution_trace_id
-- check: unique(execution_trace_id)
SELECT
    -- First 16 hex digits of the SHA-256 of the unpacked content.
    CAST(execution_trace_id AS VARCHAR) AS execution_trace_id,
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(path AS VARCHAR) AS path,  -- The file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- Its name without the folder.
    regexp_replace(CAST(path AS VARCHAR), '[/\\][^/\\]*$', '') AS folder,  -- Its folder.
    CAST(rank AS BIGINT) AS rank,  -- Rank in the file's name, else the last number in it; NULL where it has none.
    CAST(job AS VARCHAR) AS job,  -- Job name, given at ingestion or from the path; NULL when unknown.
    CAST(pid AS BIGINT) AS pid,  -- Process that was observed; NULL where the file does not say.
    CAST(schema_version AS VARCHAR) AS schema_version,  -- Version of its schema; NULL where the file does not say.
    CAST(n_nodes AS BIGINT) AS n_nodes,  -- Its nodes.
    CAST(n_operators AS BIGINT) AS n_operators,  -- Those that are operators or annotations, not processes or threads.
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Bytes of JSON.
    CAST(ingested_at AS TIMESTAMP) AS ingested_at  -- When it was ingested, UTC.
FROM _staged_execution_traces
