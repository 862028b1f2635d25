-- One row: a block of memory, from its allocation to the release of its address; the trace may show only one of the
-- two.
-- How: an allocation and the next event at its address are a pair if that event is a release. A block released without
-- an allocation was allocated before the trace. The owner is the innermost CPU event open on the thread at that moment.
-- At equal times, ends come before starts. Events with zero duration own nothing.
-- check: unique(trace_id, event_id)
WITH followed AS (
    SELECT
        trace_id, event_id, pid, tid, at_ns, seq, device_type, device, address, delta_bytes,
        lag(delta_bytes) OVER address_order AS bytes_before,
        lead(delta_bytes) OVER address_order AS bytes_next,
        lead(event_id) OVER address_order AS next_event_id,
        lead(at_ns) OVER address_order AS next_ns,
        lead(seq) OVER address_order AS next_seq
    FROM _memory_events
    WHERE address IS NOT NULL AND delta_bytes <> 0
    WINDOW address_order AS (PARTITION BY trace_id, device_type, device, address ORDER BY at_ns, event_id)
),
blocks AS (
    SELECT
        *, delta_bytes > 0 AS is_allocated, delta_bytes > 0 AND coalesce(bytes_next < 0, FALSE) AS is_pair
    FROM followed
    WHERE delta_bytes > 0 OR coalesce(bytes_before, -1) < 0
),
marks AS (
    SELECT
        t.trace_id, t.thread_id, b.event_id, b.at_ns, 2 AS turn, 0 AS by_length, b.event_id AS by_place,
        CAST(NULL AS BIGINT) AS open_event_id
    FROM blocks AS b
    JOIN threads AS t ON t.trace_id = b.trace_id AND t.pid = b.pid AND t.tid = b.tid
    UNION ALL
    SELECT c.trace_id, c.thread_id, e.event_id, e.start_ns, 1, -e.duration_ns, e.event_id, e.event_id
    FROM call_stacks AS c
    JOIN events AS e ON e.trace_id = c.trace_id AND e.event_id = c.event_id
    WHERE e.duration_ns > 0
    UNION ALL
    SELECT c.trace_id, c.thread_id, e.event_id, e.end_ns, 0, e.duration_ns, -e.event_id, coalesce(c.parent_event_id, -1)
    FROM call_stacks AS c
    JOIN events AS e ON e.trace_id = c.trace_id AND e.event_id = c.event_id
    WHERE e.duration_ns > 0
),
-- A block's owner is the event left open by the n-th start or end on its thread, where n is the number of starts and
-- ends so far.
numbered AS (
    SELECT
        trace_id, thread_id, event_id, open_event_id,
        count(open_event_id) OVER (
            PARTITION BY trace_id, thread_id ORDER BY at_ns, turn, by_length, by_place
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_changes
    FROM marks
),
owners AS (
    SELECT b.trace_id, b.event_id, nullif(c.open_event_id, -1) AS owner_event_id
    FROM numbered AS b
    LEFT JOIN numbered AS c
        ON c.trace_id = b.trace_id AND c.thread_id = b.thread_id AND c.n_changes = b.n_changes
            AND c.open_event_id IS NOT NULL
    WHERE b.open_event_id IS NULL
)
SELECT
    b.trace_id,  -- The trace.
    b.event_id,  -- Position of the allocation in traceEvents, or of the release if the allocation is missing.
    b.device_type,  -- PyTorch's number for the kind of device: 0 CPU, 1 CUDA, 6 HIP.
    b.device,  -- Device number; -1 for the CPU.
    TRY_CAST(b.address AS DECIMAL(20, 0)) AS address,  -- Address of the block.
    -- Size of the block, bytes. The smallest BIGINT has no positive counterpart.
    abs(greatest(b.delta_bytes, -9223372036854775807)) AS size_bytes,
    -- Time of the allocation, ns; NULL if it was before the trace.
    CASE WHEN b.is_allocated THEN b.at_ns END AS alloc_ns,
    -- Time of the release, ns; NULL if it is not in the trace.
    CASE WHEN b.is_pair THEN b.next_ns WHEN NOT b.is_allocated THEN b.at_ns END AS free_ns,
    -- Position of the release in traceEvents.
    CASE WHEN b.is_pair THEN b.next_event_id WHEN NOT b.is_allocated THEN b.event_id END AS free_event_id,
    -- Position of the allocation in memory_timeline (seq); NULL if it was before the trace.
    CASE WHEN b.is_allocated THEN b.seq END AS alloc_seq,
    -- Position of the release in memory_timeline (seq); NULL if it is not in the trace.
    CASE WHEN b.is_pair THEN b.next_seq WHEN NOT b.is_allocated THEN b.seq END AS free_seq,
    -- From allocation to release, ns; NULL if either is missing.
    CASE WHEN b.is_pair THEN b.next_ns - b.at_ns END AS lifetime_ns,
    -- paired; live: not released within the trace; before_trace: allocated before the trace; release_missing: the
    -- address was allocated again without a release in between; size_mismatch: a different size was released.
    CASE
        WHEN NOT b.is_allocated THEN 'before_trace'
        WHEN NOT b.is_pair AND b.bytes_next IS NULL THEN 'live'
        WHEN NOT b.is_pair THEN 'release_missing'
        WHEN b.bytes_next + b.delta_bytes <> 0 THEN 'size_mismatch'
        ELSE 'paired'
    END AS state,
    -- Innermost CPU event around the allocation; NULL where there is none.
    CASE WHEN b.is_allocated THEN o.owner_event_id END AS owner_event_id,
    CASE WHEN b.is_allocated THEN e.name END AS owner  -- Name of the owner.
FROM blocks AS b
LEFT JOIN owners AS o ON o.trace_id = b.trace_id AND o.event_id = b.event_id
LEFT JOIN events AS e ON e.trace_id = o.trace_id AND e.event_id = o.owner_event_id
