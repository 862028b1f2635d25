-- One row: a call on the CPU to a collective or a point-to-point transfer (record_param_comms), with its arguments.
-- check: unique(trace_id, event_id)
WITH parsed AS (
    SELECT
        trace_id, event_id, start_ns, end_ns,
        args ->> '$."Collective name"' AS collective_name,
        args ->> '$."Process Group Name"' AS group_name,
        args ->> '$."Process Group Ranks"' AS group_ranks,
        TRY_CAST(args ->> '$."Seq"' AS BIGINT) AS seq,
        TRY_CAST(args ->> '$."In msg nelems"' AS BIGINT) AS in_elements,
        TRY_CAST(args ->> '$."Out msg nelems"' AS BIGINT) AS out_elements,
        lower(args ->> '$."dtype"') AS dtype
    FROM events
    WHERE name = 'record_param_comms' AND ph = 'X' AND start_ns IS NOT NULL AND contains(args, '"Collective name"')
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    start_ns,  -- Start of the call on the CPU, ns.
    end_ns,  -- End of the call on the CPU, ns.
    collective_name,  -- Name of the operation, as the framework spells it.
    -- collective_name in lower case without underscores, such as allreduce or allgatherbase.
    replace(lower(collective_name), '_', '') AS op,
    group_name,  -- Process group; NULL if the trace does not record it.
    group_ranks,  -- Ranks of the group, as written in the trace.
    seq,  -- Sequence number within the group; NULL if the trace does not record it.
    in_elements,  -- Number of input elements.
    out_elements,  -- Number of output elements.
    dtype  -- Element type, in lower case.
FROM parsed
