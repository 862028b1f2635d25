-- Question: What is in this lake?
-- Reading: One row per job, kind of GPU and number of ranks; a trace without a job is a separate row, by its file.
-- `n_not_whole` counts traces that were repaired or are truncated; `tracelake ask quality` shows the findings.
SELECT
    coalesce(t.job, t.file) AS job, t.device_name AS device, t.world_size, count(*) AS n_traces,
    count(DISTINCT t.capture_id) AS n_captures, nullif(count(DISTINCT t.host), 0) AS n_hosts,
    round(sum(t.unpacked_bytes) / 1e6, 1) AS unpacked_mb, count(*) FILTER (WHERE t.status <> 'ok') AS n_not_whole,
    date_trunc('second', max(t.ingested_at)) AS last_ingested
FROM traces AS t
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.device_name, t.world_size
ORDER BY n_traces DESC, job, t.device_name, t.world_size, coalesce(t.job, t.trace_id)
