-- One row: an all-to-all of a rank and a rank of its group, with the rows sent to that rank and received from it.
-- How: from the split sizes that PyTorch records for an all-to-all of unequal parts (all_to_allv). With expert
-- parallelism, a row is a token on its way to or from an expert. Other all-to-alls, such as all-to-alls of embeddings,
-- also have rows. Collectives without recorded sizes (equal parts, lists of tensors) have no rows.
-- check: unique(trace_id, event_id, peer)
WITH recorded AS (
    SELECT
        s.trace_id, s.event_id, s.peer, s.peer_rank, s.sent_rows, s.received_rows, s.all_sent_rows, s.all_received_rows,
        TRY_CAST(a.args ->> '$."In msg nelems"' AS BIGINT) AS in_elements,
        TRY_CAST(a.args ->> '$."Out msg nelems"' AS BIGINT) AS out_elements,
        z.size_bytes
    FROM _split_sizes AS s
    JOIN _collective_args AS a ON a.trace_id = s.trace_id AND a.event_id = s.event_id
    LEFT JOIN element_sizes AS z ON z.dtype = lower(a.args ->> '$.dtype')
),
-- Numbers that are not sizes count as not recorded.
split AS (
    SELECT
        trace_id, event_id, peer, peer_rank, sent_rows, received_rows, all_sent_rows, all_received_rows, size_bytes,
        CASE WHEN in_elements BETWEEN 0 AND 9223372036854775807 // size_bytes THEN in_elements END AS in_elements,
        CASE WHEN out_elements BETWEEN 0 AND 9223372036854775807 // size_bytes THEN out_elements END AS out_elements
    FROM recorded
)
SELECT
    t.trace_id,  -- The trace.
    t.event_id,  -- Position of the communication kernel in traceEvents.
    t.peer,  -- Index of the other rank in the process group, from 0; includes the rank itself.
    t.peer_rank,  -- The other rank; NULL if the trace does not record the group's ranks.
    k.step,  -- Profiler step of its launch; NULL outside of steps.
    k.group_name,  -- Process group; NULL if not recorded.
    k.group_size,  -- Ranks in the group; NULL if not recorded.
    -- Rows (tokens) sent to the other rank; NULL if the list is truncated before it (PyTorch records 30 numbers).
    t.sent_rows,
    t.received_rows,  -- Rows (tokens) received from the other rank; NULL if the list is truncated before it.
    -- Bytes of the rows sent to the other rank; NULL if the list is truncated, for an unknown type, or if rows differ
    -- in length.
    CASE
        WHEN t.sent_rows = 0 THEN 0
        WHEN t.in_elements % t.all_sent_rows = 0
            THEN t.sent_rows * (t.in_elements // t.all_sent_rows) * t.size_bytes
    END AS sent_bytes,
    -- Bytes of the rows received from the other rank; NULL for the same reasons.
    CASE
        WHEN t.received_rows = 0 THEN 0
        WHEN t.out_elements % t.all_received_rows = 0
            THEN t.received_rows * (t.out_elements // t.all_received_rows) * t.size_bytes
    END AS received_bytes,
    t.all_sent_rows,  -- Rows sent to all ranks of the group; NULL if the list is truncated.
    t.all_received_rows,  -- Rows received from all ranks of the group: the rank's load; NULL if the list is truncated.
    k.duration_ns  -- Duration of the kernel, ns: includes both the transfer and waiting for other ranks.
FROM split AS t
JOIN collective_kernels AS k ON k.trace_id = t.trace_id AND k.event_id = t.event_id
WHERE k.kind IN ('alltoall', 'sendrecv')
