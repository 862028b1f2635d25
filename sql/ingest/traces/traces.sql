-- One row: a trace in the lake. This table is the commit mark of a batch: other tables' rows count where their trace is
-- here.
-- scope: trace
-- key: trace_id
-- check: unique(trace_id)
SELECT
    CAST(trace_id AS VARCHAR) AS trace_id,  -- First 16 hex digits of the SHA-256 of the unpacked content.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- The batch that holds its rows: that of its ingest run, or a merged one.
    CAST(NULL AS VARCHAR) AS ingest_batch_id,  -- The batch of its ingest run, if compact has merged it since.
    CAST(path AS VARCHAR) AS path,  -- File it was read from.
    regexp_extract(CAST(path AS VARCHAR), '[^/\\]*$') AS file,  -- Its name without the folder.
    -- Its capture, as in captures and capture_ranks, which may change it when more ranks arrive: the lake's views fill
    -- it in, the files hold NULL.
    CAST(capture_id AS VARCHAR) AS capture_id,
    -- Hash over the job and the folder it was found in; the traces of a group make up one capture, or several where
    -- ranks occur again.
    CAST(group_id AS VARCHAR) AS group_id,
    CAST(job AS VARCHAR) AS job,  -- Job name, given at ingestion or from the trace's metadata; NULL when unknown.
    CAST(rank AS BIGINT) AS rank,  -- Rank from distributedInfo, else from the file name; NULL when unknown.
    -- What told the rank: trace (distributedInfo), file_name, label (of its processes, in a file into which several
    -- ranks' traces were merged), or, of an export, nccl (its largest communicator), environment (that was recorded),
    -- device: inferred, the number of the only GPU on which this process worked. NULL where the rank is, and for traces
    -- ingested before this column was there.
    CAST(rank_source AS VARCHAR) AS rank_source,
    CAST(world_size AS BIGINT) AS world_size,  -- Ranks of the job; NULL when unknown.
    CAST(host AS VARCHAR) AS host,  -- Host name; NULL when the trace does not say.
    CAST(device_name AS VARCHAR) AS device_name,  -- Name of the first GPU; NULL when the trace does not say.
    CAST(device_count AS BIGINT) AS device_count,  -- GPUs of the host; NULL when the trace does not say.
    CAST(n_events AS BIGINT) AS n_events,  -- Entries of traceEvents.
    CAST(trace_start_ns AS BIGINT) AS trace_start_ns,  -- Earliest start of an event with a duration, ns.
    -- trace_start_ns as a time, UTC; NULL where the trace does not count time from 1970 (before 2001-09-09, 10^18 ns).
    CASE
        WHEN
            CAST(trace_start_ns AS BIGINT) > threshold('dated_ns')
            THEN make_timestamp(CAST(trace_start_ns AS BIGINT) // 1000)
    END AS started_at,
    CAST(trace_end_ns AS BIGINT) AS trace_end_ns,  -- Latest end of an event with a duration, ns.
    CAST(format AS VARCHAR) AS format,  -- Compression and top-level form of the file.
    CAST(unpacked_bytes AS BIGINT) AS unpacked_bytes,  -- Bytes of JSON.
    CAST(status AS VARCHAR) AS status,  -- ok, repaired (broken text was mended) or partial (the file was cut off).
    CAST(ingested_at AS TIMESTAMP) AS ingested_at,  -- When it was ingested, UTC.
    CAST(metadata AS VARCHAR) AS metadata  -- All other top-level keys of the file, as JSON.
FROM _staged_traces
