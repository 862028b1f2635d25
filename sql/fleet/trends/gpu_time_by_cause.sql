-- One row: a cause that took GPU time of a rank. All causes together account for the capture's whole span on each of
-- the rank's devices. Captures without GPU work have no rows.
-- How: a sweep over starts and ends. If several causes apply concurrently, the first in this order owns the interval:
-- waiting for a straggler, communication that is not matched or whose lane is refused (so that its waiting cannot be
-- separated from transfer), exposed communication, launch overhead, idle host (both by the owners in idle_causes),
-- recomputation (all computing kernels repeat work for activation checkpointing). A capture's span is the span of its
-- longest rank, on that rank's own clock.
-- scope: capture
-- check: unique(capture_id, rank, device, cause)
WITH ranks AS (
    SELECT r.capture_id, r.rank, r.trace_id, t.trace_start_ns, t.trace_end_ns
    FROM capture_ranks AS r
    JOIN traces AS t ON t.trace_id = r.trace_id
    WHERE r.left_out_reason IS NULL AND t.trace_end_ns > t.trace_start_ns
),
spans AS (
    SELECT capture_id, max(trace_end_ns - trace_start_ns) AS span_ns FROM ranks GROUP BY capture_id
),
devices AS (
    SELECT DISTINCT r.capture_id, r.rank, r.trace_id, i.device, r.trace_start_ns, r.trace_end_ns
    FROM ranks AS r
    LEFT JOIN merged_intervals AS i ON i.trace_id = r.trace_id AND i.scope = 'all'
),
-- A rank without GPU work has no measurements. It counts as missing if other ranks of the capture have GPU work, else
-- not at all.
rank_devices AS (
    SELECT * FROM devices
    WHERE device IS NOT NULL OR capture_id IN (SELECT x.capture_id FROM devices AS x WHERE x.device IS NOT NULL)
),
work AS (
    SELECT d.capture_id, d.rank, d.device, i.scope, i.start_ns, i.end_ns
    FROM rank_devices AS d
    JOIN merged_intervals AS i ON i.trace_id = d.trace_id AND i.device = d.device
),
gaps AS (
    SELECT
        d.capture_id, d.rank, d.device, i.start_ns, i.end_ns,
        CASE
            WHEN i.cause IN ('launching', 'gpu_waiting') THEN 'LAUNCH'
            WHEN i.cause = 'earlier_work' THEN 'EARLIER'
            WHEN i.cause <> 'unknown' THEN 'HOST'
        END AS what
    FROM rank_devices AS d
    JOIN idle_causes AS i ON i.trace_id = d.trace_id AND i.device = d.device
    UNION ALL
    SELECT capture_id, rank, device, trace_start_ns, trace_end_ns, 'EARLIER' FROM rank_devices WHERE device IS NULL
),
-- Refused lanes are excluded. If only the clock fit of a lane is refused, its collectives are matched, but its ranks do
-- not leave together. Then the excess over the shortest duration is not waiting.
used AS (
    SELECT c.capture_id, c.rank, c.trace_id, c.event_id, c.start_ns, c.wait_ns
    FROM collective_ranks AS c
    LEFT JOIN collective_groups AS g ON g.capture_id = c.capture_id AND g.lane = c.lane AND g.rank = c.rank
    WHERE g.refused_reason IS NULL
),
waits AS (
    SELECT c.capture_id, c.rank, k.device, c.start_ns, c.start_ns + c.wait_ns AS end_ns
    FROM used AS c
    JOIN kernels AS k ON k.trace_id = c.trace_id AND k.event_id = c.event_id
    WHERE c.wait_ns > 0
),
several AS (
    SELECT capture_id FROM ranks GROUP BY capture_id HAVING count(*) > 1
),
unsplit AS (
    SELECT DISTINCT r.capture_id, r.rank, k.device, k.start_ns, k.end_ns
    FROM ranks AS r
    JOIN several AS s ON s.capture_id = r.capture_id
    JOIN collective_kernels AS k ON k.trace_id = r.trace_id
    JOIN collective_groups AS g
        ON
            g.capture_id = r.capture_id AND g.rank = r.rank
            AND g.group_name IS NOT DISTINCT FROM k.group_name
            AND coalesce(g.group_ranks, '')
            = CASE WHEN k.group_name IS NULL THEN '' ELSE coalesce(k.group_ranks, '') END
    LEFT JOIN used AS c ON c.capture_id = r.capture_id AND c.trace_id = k.trace_id AND c.event_id = k.event_id
    WHERE c.event_id IS NULL AND k.end_ns > k.start_ns
),
recomputed AS (
    SELECT DISTINCT trace_id, event_id FROM span_gpu_work WHERE phase = 'recompute'
),
computing AS (
    SELECT
        d.capture_id, d.rank, d.device, CASE WHEN r.event_id IS NULL THEN 'FIRST_TIME' ELSE 'AGAIN' END AS what,
        k.start_ns, k.end_ns
    FROM rank_devices AS d
    JOIN kernels AS k ON k.trace_id = d.trace_id AND k.device = d.device
    LEFT JOIN recomputed AS r ON r.trace_id = k.trace_id AND r.event_id = k.event_id
    JOIN class_kinds AS n ON n.class = k.class AND n.counts_as = 'COMPUTATION'
    WHERE d.trace_id IN (SELECT x.trace_id FROM recomputed AS x)
),
stretches AS (
    SELECT capture_id, rank, device, what, start_ns, end_ns FROM computing
    UNION ALL
    SELECT capture_id, rank, device, 'WAIT', start_ns, end_ns FROM waits
    UNION ALL
    SELECT capture_id, rank, device, 'UNSPLIT', start_ns, end_ns FROM unsplit
    UNION ALL
    SELECT capture_id, rank, device, scope, start_ns, end_ns FROM work WHERE scope <> 'all'
    UNION ALL
    SELECT capture_id, rank, device, what, start_ns, end_ns FROM gaps
    UNION ALL
    SELECT capture_id, rank, device, 'TRACE', trace_start_ns, trace_end_ns FROM rank_devices
),
changes AS (
    SELECT capture_id, rank, device, what, start_ns, 1 AS change FROM stretches
    UNION ALL
    SELECT capture_id, rank, device, what, end_ns, -1 FROM stretches
),
summed AS (
    SELECT
        capture_id, rank, device, start_ns,
        sum(CASE WHEN what = 'WAIT' THEN change ELSE 0 END) AS wait,
        sum(CASE WHEN what = 'UNSPLIT' THEN change ELSE 0 END) AS unsplit,
        sum(CASE WHEN what = 'COMMUNICATION' THEN change ELSE 0 END) AS communication,
        sum(CASE WHEN what = 'COMPUTATION' THEN change ELSE 0 END) AS compute,
        sum(CASE WHEN what = 'FIRST_TIME' THEN change ELSE 0 END) AS first_time,
        sum(CASE WHEN what = 'AGAIN' THEN change ELSE 0 END) AS again,
        sum(CASE WHEN what = 'MEMORY' THEN change ELSE 0 END) AS memory,
        sum(CASE WHEN what = 'LAUNCH' THEN change ELSE 0 END) AS launch,
        sum(CASE WHEN what = 'HOST' THEN change ELSE 0 END) AS host,
        sum(CASE WHEN what = 'EARLIER' THEN change ELSE 0 END) AS earlier
    FROM changes
    GROUP BY capture_id, rank, device, start_ns
),
open_at AS (
    SELECT
        capture_id, rank, device,
        lead(start_ns) OVER (PARTITION BY capture_id, rank, device ORDER BY start_ns) - start_ns AS duration_ns,
        sum(wait) OVER sofar AS wait,
        sum(unsplit) OVER sofar AS unsplit, sum(communication) OVER sofar AS communication,
        sum(compute) OVER sofar AS compute,
        sum(first_time) OVER sofar AS first_time, sum(again) OVER sofar AS again, sum(memory) OVER sofar AS memory,
        sum(launch) OVER sofar AS launch, sum(host) OVER sofar AS host, sum(earlier) OVER sofar AS earlier
    FROM summed
    WINDOW sofar AS (
        PARTITION BY capture_id, rank, device ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
caused AS (
    SELECT
        capture_id, rank, device, duration_ns, compute,
        CASE
            WHEN wait > 0 THEN 'straggler_wait'
            WHEN unsplit > 0 AND compute = 0 THEN 'unsplit_communication'
            WHEN communication > 0 AND compute = 0 THEN 'exposed_communication'
            WHEN launch > 0 THEN 'launch_overhead'
            WHEN host > 0 THEN 'idle_host'
            WHEN earlier > 0 THEN 'not_in_trace'
            WHEN again > 0 AND first_time = 0 THEN 'recompute'
            WHEN compute > 0 THEN 'compute'
            WHEN memory > 0 THEN 'exposed_memory'
            ELSE 'unattributed'
        END AS cause
    FROM open_at
    WHERE duration_ns > 0
),
divided AS (
    SELECT
        capture_id, rank, device, cause, sum(duration_ns) AS gpu_ns,
        sum(CASE WHEN compute > 0 AND cause = 'straggler_wait' THEN duration_ns ELSE 0 END) AS hidden_ns
    FROM caused
    GROUP BY capture_id, rank, device, cause
    UNION ALL
    SELECT d.capture_id, d.rank, d.device, 'not_in_trace', s.span_ns - (d.trace_end_ns - d.trace_start_ns), 0
    FROM rank_devices AS d
    JOIN spans AS s ON s.capture_id = d.capture_id
    WHERE s.span_ns > d.trace_end_ns - d.trace_start_ns
)
SELECT
    capture_id,  -- The capture.
    rank,  -- The rank.
    device,  -- Device of the rank; NULL where the rank has no GPU work.
    -- straggler_wait, exposed_communication (transfer), unsplit_communication (transfer and waiting, where calls
    -- are not matched or not used), launch_overhead, idle_host, recompute, compute (nothing lost), exposed_memory,
    -- not_in_trace (the rank's trace is shorter than the longest, the trace has no GPU work, or the device waits for
    -- work from before the trace), or unattributed.
    cause,
    TRY_CAST(sum(gpu_ns) AS BIGINT) AS gpu_ns,  -- GPU time that the cause took, ns.
    -- Part of gpu_ns that was not lost, because kernels computed concurrently, ns.
    TRY_CAST(sum(hidden_ns) AS BIGINT) AS hidden_ns
FROM divided
GROUP BY capture_id, rank, device, cause
