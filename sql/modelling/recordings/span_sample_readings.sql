-- One row: a span of a sampled step and a counter sampled during it: of the process, of the host's GPUs and networks,
-- or of NCCL.
-- How: samples by time. Samples of a process belong to spans of that process. Samples of GPUs and networks belong to
-- the host and come from one recording of counters there (of the same process, else of the same run). A rate counts if
-- the middle of its interval falls into the span. An NCCL call counts if it was enqueued in the span.
-- scope: lake
-- check: unique(recording_id, step, span_id, source, device, reading)
WITH chosen AS (
    SELECT
        s.recording_id, c.recording_id AS counters_id, c.pid = s.pid AS is_of_process,
        row_number() OVER (
            PARTITION BY s.recording_id
            ORDER BY (c.pid = s.pid) DESC, (c.run_id = s.run_id) DESC, c.start_ns, c.recording_id
        ) AS choice
    FROM recordings AS s
    JOIN recordings AS c
        ON c.host = s.host AND c.kind = 'counters'
            AND c.start_ns <= coalesce(s.end_ns, s.seen_ns) AND s.start_ns <= coalesce(c.end_ns, c.seen_ns)
    WHERE s.kind = 'spans'
),
concurrent AS (
    SELECT * FROM chosen WHERE choice = 1
),
linked AS (
    SELECT
        recording_id, gpu_index, t_unix_ns, nvlink_rx_kb, nvlink_tx_kb,
        lag(t_unix_ns) OVER sampled AS before_ns,
        lag(nvlink_rx_kb) OVER sampled AS before_rx_kb,
        lag(nvlink_tx_kb) OVER sampled AS before_tx_kb
    FROM gpu_samples
    WINDOW sampled AS (PARTITION BY recording_id, gpu_index ORDER BY t_unix_ns)
),
links AS (
    -- All GPUs of the host with the name of the recording's device, because the recording does not identify its GPU.
    SELECT DISTINCT
        b.recording_id, CAST(g.gpu_index AS VARCHAR) AS device,
        1e9 * v.link_unidirectional_gigabytes_per_s AS nvlink_bytes_per_s,
        1e9 * v.pcie_unidirectional_gigabytes_per_s AS pcie_bytes_per_s
    FROM concurrent AS b
    JOIN recordings AS s ON s.recording_id = b.recording_id
    JOIN gpu_samples AS g ON g.recording_id = b.counters_id AND g.gpu_name = s.device_name
    JOIN recording_devices AS d ON d.recording_id = b.recording_id
    JOIN devices AS v ON v.device_key = d.device_key
),
process_readings AS (
    SELECT recording_id, t_unix_ns AS at_ns, 'rss_bytes' AS reading, CAST(rss_bytes AS DOUBLE) AS value
    FROM host_samples
    UNION ALL
    SELECT recording_id, t_unix_ns, 'n_threads', CAST(n_threads AS DOUBLE) FROM host_samples
    UNION ALL
    SELECT recording_id, t_unix_ns - between_ns // 2, 'user_cores', user_cores FROM host_rates
    UNION ALL
    SELECT recording_id, t_unix_ns - between_ns // 2, 'system_cores', system_cores FROM host_rates
    UNION ALL
    SELECT recording_id, t_unix_ns - between_ns // 2, 'major_faults_per_s', major_faults_per_s FROM host_rates
    UNION ALL
    SELECT recording_id, t_unix_ns - between_ns // 2, 'read_bytes_per_s', read_bytes_per_s FROM host_rates
    UNION ALL
    SELECT recording_id, t_unix_ns - between_ns // 2, 'write_bytes_per_s', write_bytes_per_s FROM host_rates
),
host_readings AS (
    SELECT
        recording_id, t_unix_ns AS at_ns, 'gpu' AS source, CAST(gpu_index AS VARCHAR) AS device,
        'sm_util' AS reading, CAST(sm_util AS DOUBLE) AS value
    FROM gpu_samples
    UNION ALL
    SELECT recording_id, t_unix_ns, 'gpu', CAST(gpu_index AS VARCHAR), 'mem_util', CAST(mem_util AS DOUBLE)
    FROM gpu_samples
    UNION ALL
    SELECT recording_id, t_unix_ns, 'gpu', CAST(gpu_index AS VARCHAR), 'mem_used_bytes', CAST(mem_used_bytes AS DOUBLE)
    FROM gpu_samples
    UNION ALL
    SELECT recording_id, t_unix_ns, 'gpu', CAST(gpu_index AS VARCHAR), 'sm_clock_mhz', CAST(sm_clock_mhz AS DOUBLE)
    FROM gpu_samples
    UNION ALL
    SELECT recording_id, t_unix_ns, 'gpu', CAST(gpu_index AS VARCHAR), 'power_w', power_w FROM gpu_samples
    UNION ALL
    SELECT recording_id, t_unix_ns, 'gpu', CAST(gpu_index AS VARCHAR), 'pcie_rx_bytes_per_s', 1e3 * pcie_rx_kbs
    FROM gpu_samples
    UNION ALL
    SELECT recording_id, t_unix_ns, 'gpu', CAST(gpu_index AS VARCHAR), 'pcie_tx_bytes_per_s', 1e3 * pcie_tx_kbs
    FROM gpu_samples
    UNION ALL
    SELECT
        recording_id, t_unix_ns - (t_unix_ns - before_ns) // 2, 'gpu', CAST(gpu_index AS VARCHAR),
        'nvlink_rx_bytes_per_s',
        1024e9 * (nvlink_rx_kb - before_rx_kb) / nullif(t_unix_ns - before_ns, 0)
    FROM linked
    WHERE nvlink_rx_kb >= before_rx_kb
    UNION ALL
    SELECT
        recording_id, t_unix_ns - (t_unix_ns - before_ns) // 2, 'gpu', CAST(gpu_index AS VARCHAR),
        'nvlink_tx_bytes_per_s',
        1024e9 * (nvlink_tx_kb - before_tx_kb) / nullif(t_unix_ns - before_ns, 0)
    FROM linked
    WHERE nvlink_tx_kb >= before_tx_kb
    UNION ALL
    SELECT
        recording_id, t_unix_ns - between_ns // 2, kind, concat_ws(':', device, port), 'rx_bytes_per_s',
        rx_bytes_per_s
    FROM net_rates
    UNION ALL
    SELECT
        recording_id, t_unix_ns - between_ns // 2, kind, concat_ws(':', device, port), 'tx_bytes_per_s',
        tx_bytes_per_s
    FROM net_rates
    UNION ALL
    SELECT recording_id, t_unix_ns - between_ns // 2, kind, concat_ws(':', device, port), 'tx_wait_per_s', tx_wait_per_s
    FROM net_rates
    UNION ALL
    SELECT
        recording_id, t_unix_ns - between_ns // 2, kind, concat_ws(':', device, port), 'cnp_sent_per_s',
        cnp_sent_per_s
    FROM net_rates
),
nccl_calls AS (
    SELECT r.recording_id, c.name, c.enqueued_ns AS at_ns, c.size_bytes, c.duration_ns, c.bus_gigabytes_per_s
    FROM recordings AS r
    JOIN inspector_logs AS l ON l.host = r.host AND l.pid = r.pid
    JOIN inspector_collectives AS c ON c.log_id = l.log_id
    WHERE r.kind = 'spans'
),
readings AS (
    SELECT b.recording_id, p.at_ns, 'process' AS source, '' AS device, p.reading, p.value
    FROM concurrent AS b
    JOIN process_readings AS p ON p.recording_id = b.counters_id
    WHERE b.is_of_process
    UNION ALL
    SELECT b.recording_id, h.at_ns, h.source, h.device, h.reading, h.value
    FROM concurrent AS b
    JOIN host_readings AS h ON h.recording_id = b.counters_id
    UNION ALL
    SELECT recording_id, at_ns, 'nccl', name, 'size_bytes', CAST(size_bytes AS DOUBLE) FROM nccl_calls
    UNION ALL
    SELECT recording_id, at_ns, 'nccl', name, 'duration_ns', CAST(duration_ns AS DOUBLE) FROM nccl_calls
    UNION ALL
    SELECT recording_id, at_ns, 'nccl', name, 'bus_gigabytes_per_s', bus_gigabytes_per_s FROM nccl_calls
)
SELECT
    s.recording_id,  -- The recording of the span, in recordings.
    s.step,  -- Number of the step in its loop.
    s.span_id,  -- The span within its step, in span_samples.
    r.source,  -- process, gpu, infiniband, net, or nccl (an NCCL Inspector log with enqueue times).
    -- Number of the GPU on its host, device (and port) of the network, or NCCL call; empty for the process.
    r.device,
    -- Name of the reading, as a column of host_samples, host_rates, gpu_samples, net_rates or inspector_collectives.
    r.reading,
    count(*) AS n_samples,  -- Samples taken during the span; with few samples, the mean is uncertain.
    avg(r.value) AS mean,  -- Mean of the samples.
    min(r.value) AS least,  -- Smallest sample.
    max(r.value) AS most,  -- Largest sample.
    -- For NVLink and PCIe: the mean in percent of the links' rate in one direction, from the data sheet of the
    -- recording's device. It covers the GPU, not only the span: other work of the GPU counts, and an NVLink rate covers
    -- the whole interval between two samples. NULL for other readings, for a GPU of another name than the recording's
    -- device, and if the rate of the device's links is unknown.
    100 * avg(r.value) / CASE
        WHEN starts_with(r.reading, 'nvlink') THEN max(l.nvlink_bytes_per_s)
        WHEN starts_with(r.reading, 'pcie') THEN max(l.pcie_bytes_per_s)
    END AS link_percent
FROM span_samples AS s
JOIN readings AS r
    ON r.recording_id = s.recording_id AND r.at_ns >= s.start_ns AND r.at_ns < s.start_ns + s.duration_ns
LEFT JOIN links AS l ON l.recording_id = s.recording_id AND r.source = 'gpu' AND l.device = r.device
WHERE r.value IS NOT NULL
GROUP BY s.recording_id, s.step, s.span_id, r.source, r.device, r.reading
