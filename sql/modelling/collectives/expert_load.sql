-- One row: an all-to-all of a rank and a rank of its group, with what is sent to it and received from it.
-- How: by the split sizes that PyTorch writes with an all-to-all of unequal parts (all_to_allv). With expert
-- parallelism a row is a token on its way to or from an expert; other all-to-alls, as of embeddings, are listed, too.
-- Collectives whose sizes are not written (equal parts, lists of tensors) have no rows.
-- check: unique(trace_id, event_id, peer)
WITH told AS (
    SELECT
        s.trace_id, s.event_id, s.peer, s.peer_rank, s.sent_rows, s.received_rows, s.all_sent_rows, s.all_received_rows,
        TRY_CAST(a.args ->> '$."In msg nelems"' AS BIGINT) AS in_elements,
        TRY_CAST(a.args ->> '$."Out msg nelems"' AS BIGINT) AS out_elements,
        z.size_bytes
    FROM _split_sizes AS s
    JOIN _collective_args AS a ON a.trace_id = s.trace_id AND a.event_id = s.event_id
    LEFT JOIN element_sizes AS z ON z.dtype = lower(a.args ->> '$.dtype')
)
SELECT
    t.trace_id,  -- The trace.
    t.event_id,  -- The communication kernel's position in traceEvents.
    t.peer,  -- Place of the other rank in the process group, from 0; the rank itself is one of them.
    t.peer_rank,  -- The other rank; NULL where the trace does not write the group's ranks.
    k.step,  -- Profiler step of its launch; NULL outside of steps.
    k.group_name,  -- Process group; NULL where the trace does not say.
    k.group_size,  -- Ranks in the group; NULL where the trace does not say.
    t.sent_rows,  -- Rows (tokens) sent to it; NULL where the list is cut off before (PyTorch writes 30 numbers).
    t.received_rows,  -- Rows (tokens) received from it; NULL where the list is cut off before.
    -- Bytes of the rows sent to it; NULL where the list is cut off, for an unknown type, or if rows are not of one
    -- length.
    CASE
        WHEN t.sent_rows = 0 THEN 0
        WHEN t.in_elements % t.all_sent_rows = 0
            THEN t.sent_rows * (t.in_elements // t.all_sent_rows) * t.size_bytes
    END AS sent_bytes,
    -- Bytes of the rows received from it; NULL as for those sent.
    CASE
        WHEN t.received_rows = 0 THEN 0
        WHEN t.out_elements % t.all_received_rows = 0
            THEN t.received_rows * (t.out_elements // t.all_received_rows) * t.size_bytes
    END AS received_bytes,
    t.all_sent_rows,  -- Rows sent to all ranks of the group; NULL where the list is cut off.
    t.all_received_rows,  -- Rows received from all ranks of the group: the rank's load; NULL where the list is cut off.
    k.duration_ns  -- Duration of the kernel, ns: includes both the transfer and waiting for other ranks.
FROM told AS t
JOIN collective_kernels AS k ON k.trace_id = t.trace_id AND k.event_id = t.event_id
WHERE k.kind IN ('alltoall', 'sendrecv')
