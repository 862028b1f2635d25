-- One row: the interval between two samples of a network device's counters, with rates.
-- How: differences from the previous sample, divided by the monotonic time between the two. If a counter went back (it
-- wrapped, or the device was reset), the interval has no rates at all.
-- scope: lake
WITH steps AS (
    SELECT
        recording_id, kind, device, port, t_unix_ns,
        t_mono_ns - lag(t_mono_ns) OVER sampled AS between_ns,
        rx_bytes - lag(rx_bytes) OVER sampled AS rx_bytes,
        tx_bytes - lag(tx_bytes) OVER sampled AS tx_bytes,
        rx_packets - lag(rx_packets) OVER sampled AS rx_packets,
        tx_packets - lag(tx_packets) OVER sampled AS tx_packets,
        rx_errors - lag(rx_errors) OVER sampled AS rx_errors,
        tx_errors - lag(tx_errors) OVER sampled AS tx_errors,
        rx_dropped - lag(rx_dropped) OVER sampled AS rx_dropped,
        tx_dropped - lag(tx_dropped) OVER sampled AS tx_dropped,
        tx_wait - lag(tx_wait) OVER sampled AS tx_wait,
        cnp_sent - lag(cnp_sent) OVER sampled AS cnp_sent,
        cnp_handled - lag(cnp_handled) OVER sampled AS cnp_handled,
        ecn_marked - lag(ecn_marked) OVER sampled AS ecn_marked,
        out_of_sequence - lag(out_of_sequence) OVER sampled AS out_of_sequence
    FROM net_samples
    WINDOW sampled AS (PARTITION BY recording_id, kind, device, port ORDER BY t_mono_ns)
),
judged AS (
    SELECT
        *,
        least(
            rx_bytes, tx_bytes, rx_packets, tx_packets, rx_errors, tx_errors, rx_dropped, tx_dropped, tx_wait, cnp_sent,
            cnp_handled, ecn_marked, out_of_sequence
        ) < 0 AS went_back
    FROM steps
),
timed AS (
    SELECT *, CASE WHEN NOT coalesce(went_back, FALSE) THEN between_ns END AS over_ns FROM judged
)
SELECT
    t.recording_id,  -- The recording, in recordings.
    r.run_id,  -- The run.
    r.host,  -- Host.
    -- Rank of the process sampled at the same time; NULL where unknown. The counters are the host's: never add up the
    -- ranks of a host.
    r.rank,
    t.kind,  -- infiniband or net.
    t.device,  -- The device.
    t.port,  -- Port of an RDMA device; NULL for an interface.
    t.t_unix_ns,  -- The later sample, ns since the Unix epoch.
    t.between_ns,  -- Time since the earlier sample, ns.
    -- True if a counter is lower than before: it wrapped or was reset, so its change is unknown and all rates are NULL.
    coalesce(t.went_back, FALSE) AS went_back,
    -- Received, bytes/s; NULL if the device does not report it, as in all rates.
    1e9 * t.rx_bytes / t.over_ns AS rx_bytes_per_s,
    1e9 * t.tx_bytes / t.over_ns AS tx_bytes_per_s,  -- Sent, bytes/s.
    1e9 * t.rx_packets / t.over_ns AS rx_packets_per_s,  -- Packets received, 1/s.
    1e9 * t.tx_packets / t.over_ns AS tx_packets_per_s,  -- Packets sent, 1/s.
    1e9 * t.rx_errors / t.over_ns AS rx_errors_per_s,  -- Packets received with an error, 1/s.
    1e9 * t.tx_errors / t.over_ns AS tx_errors_per_s,  -- Packets that could not be sent, 1/s.
    1e9 * t.rx_dropped / t.over_ns AS rx_dropped_per_s,  -- Packets received and dropped, 1/s.
    1e9 * t.tx_dropped / t.over_ns AS tx_dropped_per_s,  -- Packets dropped before they were sent, 1/s.
    -- Ticks with data that was not allowed to be sent, 1/s. Compare only over time, because the tick is specific to the
    -- port.
    1e9 * t.tx_wait / t.over_ns AS tx_wait_per_s,
    1e9 * t.cnp_sent / t.over_ns AS cnp_sent_per_s,  -- Congestion notifications sent, 1/s.
    1e9 * t.cnp_handled / t.over_ns AS cnp_handled_per_s,  -- Congestion notifications handled, 1/s.
    1e9 * t.ecn_marked / t.over_ns AS ecn_marked_per_s,  -- Packets received that were marked as congested, 1/s.
    1e9 * t.out_of_sequence / t.over_ns AS out_of_sequence_per_s  -- Packets received out of sequence, 1/s.
FROM timed AS t
JOIN recordings AS r ON r.recording_id = t.recording_id
WHERE t.between_ns > 0
