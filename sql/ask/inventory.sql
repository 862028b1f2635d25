-- Topic: The lake
-- Question: What is in this lake?
-- Reading: One row per job, device and world size. `n_not_whole` counts traces that were repaired or cut short;
-- `tracelake ask quality` says how.
SELECT
    t.job, count(*) AS n_traces, count(DISTINCT t.capture_id) AS n_captures, count(DISTINCT t.host) AS n_hosts,
    t.world_size, t.device_name AS device,
    round(sum(t.unpacked_bytes) / 1e6, 1) AS unpacked_mb, count(*) FILTER (WHERE t.status <> 'ok') AS n_not_whole,
    max(t.ingested_at) AS last_ingested
FROM traces AS t
GROUP BY t.job, t.world_size, t.device_name
ORDER BY n_traces DESC, t.job, t.device_name, t.world_size
