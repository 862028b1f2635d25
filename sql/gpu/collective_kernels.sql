-- One row: a communication kernel of a rank, with the collective that the trace records for it.
-- How: rules/collective_kinds.csv derives the kind from the collective's name, else from the kernel's name. The step is
-- the step of the launch.
-- check: unique(trace_id, event_id)
WITH arguments AS (
    SELECT
        trace_id, event_id,
        args ->> '$."Collective name"' AS collective_name,
        args ->> '$."Process Group Name"' AS group_name,
        args ->> '$."Process Group Ranks"' AS group_ranks,
        args ->> '$."Process Group Description"' AS group_description,
        TRY_CAST(args ->> '$."Group size"' AS BIGINT) AS group_size,
        TRY_CAST(args ->> '$."Seq"' AS BIGINT) AS seq,
        TRY_CAST(args ->> '$."In msg nelems"' AS BIGINT) AS in_elements,
        TRY_CAST(args ->> '$."Out msg nelems"' AS BIGINT) AS out_elements,
        TRY_CAST(args ->> '$."Dst Rank"' AS BIGINT) AS destination,
        lower(args ->> '$."dtype"') AS dtype,
        coalesce(regexp_matches(args ->> '$."In split size"', '(\[|,) *0 *(,|\])'), FALSE)
        OR coalesce(regexp_matches(args ->> '$."Out split size"', '(\[|,) *0 *(,|\])'), FALSE) AS has_empty_split
    FROM _collective_args
),
names AS (
    SELECT DISTINCT name AS spelled FROM kernels WHERE class = 'COMMUNICATION' AND cat = 'kernel'
    UNION
    SELECT collective_name FROM arguments WHERE collective_name IS NOT NULL
),
kinds AS (
    SELECT n.spelled, r.kind, r.waits_for_all
    FROM (
        -- Operands follow the name of XLA's instruction: %all-gather.1 = f32[8] all-gather(%all-reduce.3).
        SELECT
            spelled,
            first_collective_kinds(
                replace(replace(split_part(lower(spelled), ' = ', 1), '_', ''), '-', '')
            ) AS rule_order
        FROM names
    ) AS n
    JOIN collective_kinds AS r ON r.rule_order = n.rule_order
),
stepped AS (
    SELECT k.trace_id, k.event_id, max(s.step) AS step
    FROM kernels AS k
    JOIN _event_steps AS s ON s.trace_id = k.trace_id AND s.event_id = k.launch_event_id
    WHERE k.class = 'COMMUNICATION' AND k.cat = 'kernel'
    GROUP BY k.trace_id, k.event_id
),
described AS (
    SELECT
        k.trace_id, k.event_id, k.name, r.fused, k.device, k.stream, k.start_ns, k.end_ns, k.duration_ns,
        k.launch_event_id, s.step,
        t.collective_name, t.group_name, t.group_ranks, t.group_description, t.group_size, t.seq, t.destination,
        CASE WHEN c.kind <> 'other' THEN c.kind ELSE n.kind END AS kind,
        CASE
            WHEN t.has_empty_split THEN FALSE
            WHEN c.kind <> 'other' THEN c.waits_for_all
            -- NCCL runs all-to-alls as SendRecv. Kernel names of other libraries state the operation.
            ELSE
                n.waits_for_all
                OR n.kind = 'sendrecv' AND t.collective_name IS NULL AND k.rule_id = 'tb-communication'
        END AS waits_for_all,
        t.in_elements, t.out_elements, z.size_bytes
    FROM kernels AS k
    JOIN kinds AS n ON n.spelled = k.name
    JOIN kernel_classes AS r ON r.profile = 'default' AND r.rule_id = k.rule_id
    LEFT JOIN arguments AS t ON t.trace_id = k.trace_id AND t.event_id = k.event_id
    LEFT JOIN kinds AS c ON c.spelled = t.collective_name
    LEFT JOIN element_sizes AS z ON z.dtype = t.dtype
    LEFT JOIN stepped AS s ON s.trace_id = k.trace_id AND s.event_id = k.event_id
    WHERE k.class = 'COMMUNICATION' AND k.cat = 'kernel'
),
counted AS (
    SELECT *, CASE WHEN kind IN ('allgather', 'gather') THEN out_elements ELSE in_elements END AS n_elements
    FROM described
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    name,  -- Name of the kernel.
    fused,  -- The kernel also computes, e.g. an all-reduce fused with the following norm.
    kind,  -- allreduce, reducescatter, allgather, alltoall, broadcast, sendrecv, reduce, gather, scatter or other.
    -- No rank can leave before all ranks have arrived; FALSE for broadcast, reduce, one-way transfers and all-to-all
    -- with empty splits.
    coalesce(waits_for_all, FALSE) AS waits_for_all,
    device,  -- Device it ran on.
    stream,  -- Stream on the device.
    start_ns,  -- Start, ns.
    end_ns,  -- End, ns.
    duration_ns,  -- Duration, ns; includes the transfer and the wait for other ranks.
    launch_event_id,  -- The CPU call that launched it; NULL if the call is not in the trace.
    step,  -- Profiler step of its launch; NULL outside steps.
    collective_name,  -- Name of the collective in the framework; NULL if the trace does not record it.
    group_name,  -- Process group; NULL if the trace does not record it.
    group_ranks,  -- Ranks of the group, as written in the trace.
    group_description,  -- Description of the group, from its creator.
    group_size,  -- Number of ranks in the group.
    seq,  -- Sequence number within the group; NULL if the trace does not record it.
    destination,  -- Destination rank; NULL if the collective is not a point-to-point transfer.
    -- Bytes as nccl-tests counts them: the output of an allgather or gather, the input of others; NULL if unknown.
    CASE WHEN n_elements BETWEEN 0 AND 9223372036854775807 // size_bytes THEN n_elements * size_bytes END AS bytes
FROM counted
