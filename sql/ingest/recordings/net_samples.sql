-- One row: a sample of the counters of a network device: an RDMA port (/sys/class/infiniband) or a network interface
-- (/sys/class/net). Counters count since the device was set up or reset, for all processes of the host; net_rates has
-- their rates.
-- scope: recording
-- check: unique(recording_id, t_mono_ns, kind, device, port)
SELECT
    CAST(recording_id AS VARCHAR) AS recording_id,  -- The recording, in recordings.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(t_unix_ns AS BIGINT) AS t_unix_ns,  -- Time, ns since the Unix epoch.
    CAST(t_mono_ns AS BIGINT) AS t_mono_ns,  -- Time, ns on the host's monotonic clock.
    -- infiniband (also RoCE) or net. A RoCE card is both: its RDMA traffic bypasses the interface's counters.
    CAST(kind AS VARCHAR) AS kind,
    CAST(device AS VARCHAR) AS device,  -- Name of the device, such as mlx5_0 or eth0.
    CAST(port AS VARCHAR) AS port,  -- Port of an RDMA device; NULL for an interface.
    -- Bytes received (port_rcv_data, which counts units of 4 bytes, times 4); NULL if the device does not report it, as
    -- in all columns.
    CAST(rx_bytes AS BIGINT) AS rx_bytes,
    CAST(tx_bytes AS BIGINT) AS tx_bytes,  -- Bytes sent (port_xmit_data times 4).
    CAST(rx_packets AS BIGINT) AS rx_packets,  -- Packets received (port_rcv_packets).
    CAST(tx_packets AS BIGINT) AS tx_packets,  -- Packets sent (port_xmit_packets).
    CAST(rx_errors AS BIGINT) AS rx_errors,  -- Packets received with an error (port_rcv_errors).
    CAST(tx_errors AS BIGINT) AS tx_errors,  -- Packets that could not be sent; interfaces only.
    CAST(rx_dropped AS BIGINT) AS rx_dropped,  -- Packets received and dropped; interfaces only.
    CAST(tx_dropped AS BIGINT) AS tx_dropped,  -- Packets dropped before they were sent (port_xmit_discards).
    -- Ticks of the port in which it had data but was not allowed to send (port_xmit_wait); RDMA ports only.
    CAST(tx_wait AS BIGINT) AS tx_wait,
    -- Congestion notifications sent (np_cnp_sent): this host received marked packets.
    CAST(cnp_sent AS BIGINT) AS cnp_sent,
    -- Congestion notifications received and handled (rp_cnp_handled): this host slows its sending.
    CAST(cnp_handled AS BIGINT) AS cnp_handled,
    -- Packets received that a switch marked as congested (np_ecn_marked_roce_packets).
    CAST(ecn_marked AS BIGINT) AS ecn_marked,
    CAST(out_of_sequence AS BIGINT) AS out_of_sequence  -- Packets received out of sequence, a sign of lost packets.
FROM _staged_net_samples
