-- One row: a sample of a GPU's NVML counters. Without NVML, each sample is a row of NULLs, and recordings.source
-- contains the reason.
-- scope: recording
-- check: unique(recording_id, t_unix_ns, gpu_index)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(t_unix_ns AS BIGINT) AS t_unix_ns,  -- Time, ns since the Unix epoch.
    CAST(gpu_index AS BIGINT) AS gpu_index,  -- Number of the GPU on its host.
    CAST(gpu_uuid AS VARCHAR) AS gpu_uuid,  -- UUID of the GPU.
    CAST(gpu_name AS VARCHAR) AS gpu_name,  -- Name of the GPU.
    -- Percent of the driver's last sampling period (up to a second) in which any kernel ran; not a measure of
    -- efficiency.
    CAST(sm_util AS BIGINT) AS sm_util,
    CAST(mem_util AS BIGINT) AS mem_util,  -- Percent of that period in which memory was read or written.
    CAST(mem_used_bytes AS BIGINT) AS mem_used_bytes,  -- Memory in use, by all processes, bytes.
    CAST(sm_clock_mhz AS BIGINT) AS sm_clock_mhz,  -- Clock of the multiprocessors, MHz.
    CAST(mem_clock_mhz AS BIGINT) AS mem_clock_mhz,  -- Clock of the memory, MHz.
    CAST(power_w AS DOUBLE) AS power_w,  -- Power, W.
    CAST(temp_c AS BIGINT) AS temp_c,  -- Temperature, °C.
    CAST(throttle_mask AS BIGINT) AS throttle_mask,  -- Reasons for clock throttling: bits of nvmlClocksThrottleReasons.
    -- PCIe traffic into the GPU over 20 ms, KB/s. Read about once a second, so NULL in samples without a new reading.
    CAST(pcie_rx_kbs AS BIGINT) AS pcie_rx_kbs,
    CAST(pcie_tx_kbs AS BIGINT) AS pcie_tx_kbs,  -- PCIe traffic out of the GPU over 20 ms, KB/s; NULL as pcie_rx_kbs.
    CAST(nvlink_rx_kb AS BIGINT) AS nvlink_rx_kb,  -- NVLink into the GPU, all links, KiB since the driver was loaded.
    CAST(nvlink_tx_kb AS BIGINT) AS nvlink_tx_kb  -- NVLink out of the GPU, all links, KiB since the driver was loaded.
FROM _staged_gpu_samples
