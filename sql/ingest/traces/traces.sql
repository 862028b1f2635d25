-- One row: a trace in the lake. This table is the commit marker of batches: rows of other tables count only if their
-- trace is in it.
-- scope: trace
-- key: trace_id
-- check: unique(trace_id)
SELECT
    CAST(trace_id AS VARCHAR) AS trace_id,  -- First 16 hex digits of the SHA-256 of the decompressed content.
    -- Batch that contains its rows: the batch of its ingest run, or a merged batch.
    CAST(batch_id AS VARCHAR) AS batch_id,
    CAST(NULL AS VARCHAR) AS ingest_batch_id,  -- Batch of its ingest run; NULL unless compact has merged it.
    CAST(path AS VARCHAR) AS path,  -- Path of the file.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- File name without the folder.
    -- Capture, as in captures and capture_ranks, which may change when more ranks arrive. The lake's views fill it in;
    -- the files contain NULL.
    CAST(capture_id AS VARCHAR) AS capture_id,
    -- Hash of the job and the folder. The traces of a group form one capture, or several if ranks repeat.
    CAST(group_id AS VARCHAR) AS group_id,
    CAST(job AS VARCHAR) AS job,  -- Job name, set at ingestion or taken from the trace's metadata; NULL if unknown.
    CAST(rank AS BIGINT) AS rank,  -- Rank; NULL if unknown.
    -- Source of the rank: trace (distributedInfo), file_name, or label (of its processes, in a file merged from several
    -- ranks' traces). For an export also nccl (its largest communicator), environment (as recorded), or device
    -- (inferred: the number of the only GPU on which the process worked). NULL if the rank is NULL, and for traces
    -- ingested before this column existed.
    CAST(rank_source AS VARCHAR) AS rank_source,
    CAST(world_size AS BIGINT) AS world_size,  -- Number of ranks of the job; NULL if unknown.
    CAST(host AS VARCHAR) AS host,  -- Host name; NULL if the trace does not record it.
    CAST(device_name AS VARCHAR) AS device_name,  -- Name of the first GPU; NULL if the trace does not record it.
    CAST(device_count AS BIGINT) AS device_count,  -- Number of GPUs of the host; NULL if the trace does not record it.
    CAST(n_events AS BIGINT) AS n_events,  -- Entries of traceEvents.
    CAST(trace_start_ns AS BIGINT) AS trace_start_ns,  -- Earliest start of an event with a duration, ns.
    -- trace_start_ns as a time, UTC; NULL if the trace does not count time from 1970 (values up to 10^18 ns,
    -- 2001-09-09).
    CASE
        WHEN
            CAST(trace_start_ns AS BIGINT) > threshold('dated_ns')
            THEN make_timestamp(CAST(trace_start_ns AS BIGINT) // 1000)
    END AS started_at,
    CAST(trace_end_ns AS BIGINT) AS trace_end_ns,  -- Latest end of an event with a duration, ns.
    CAST(format AS VARCHAR) AS format,  -- Compression and top-level form of the file.
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Size of the decompressed content, bytes.
    CAST(status AS VARCHAR) AS status,  -- ok, repaired (broken text was repaired) or partial (the file is truncated).
    CAST(ingested_at AS TIMESTAMP) AS ingested_at,  -- Time of ingestion, UTC.
    CAST(metadata AS VARCHAR) AS metadata  -- All other top-level keys of the file, as JSON.
FROM _staged_traces
