-- One row: a collective of a capture with recorded split sizes (an all-to-all), with the load balance of its ranks.
-- How: a rank's load is the number of rows (tokens) that it receives. The cost of an uneven load shows in the next
-- collective of the lane: the rank that received more works longer, and the other ranks wait there.
-- scope: capture
-- check: unique(capture_id, collective_id)
WITH loads AS (
    SELECT
        trace_id, event_id, max(all_received_rows) AS n_rows,
        CASE WHEN count(received_bytes) = count(*) THEN TRY_CAST(sum(received_bytes) AS BIGINT) END AS n_bytes
    FROM expert_load
    GROUP BY trace_id, event_id
),
ranked AS (
    SELECT
        r.capture_id, r.collective_id, r.rank, l.n_rows, l.n_bytes,
        row_number() OVER (
            PARTITION BY r.capture_id, r.collective_id
            ORDER BY coalesce(l.n_rows, -1) DESC, r.rank
        ) AS place
    FROM collective_ranks AS r
    LEFT JOIN loads AS l ON l.trace_id = r.trace_id AND l.event_id = r.event_id
),
gathered AS (
    SELECT
        capture_id, collective_id, count(n_rows) AS n_known, count(*) AS n_ranks, max(n_rows) AS max_rows,
        min(n_rows) AS min_rows, avg(n_rows) AS mean_rows, max(n_bytes) AS max_bytes,
        max(CASE WHEN place = 1 THEN rank END) AS busiest_rank
    FROM ranked
    GROUP BY capture_id, collective_id
    HAVING count(n_rows) > 0
),
timed AS (
    SELECT
        capture_id, collective_id, lane, step, group_name, group_size, kind,
        CASE WHEN refused_reason IS NULL THEN wait_ns END AS wait_ns,
        CASE WHEN refused_reason IS NULL THEN culprit_rank END AS culprit_rank
    FROM collectives
),
met AS (
    SELECT
        *,
        lead(collective_id) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_id,
        lead(kind) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_kind,
        lead(wait_ns) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_wait_ns,
        lead(culprit_rank) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_culprit_rank
    FROM timed
)
SELECT
    g.capture_id,  -- The capture.
    g.collective_id,  -- The collective, in collectives.
    c.lane,  -- The lane, in collective_groups.
    c.step,  -- Profiler step of its launch on the lane's reference rank; NULL outside of steps.
    c.group_name,  -- Process group; NULL if not recorded.
    c.group_size,  -- Ranks in the group; NULL if not recorded.
    g.n_known AS n_ranks_known,  -- Ranks of the capture whose load is known.
    g.min_rows,  -- Rows received by the least loaded of these ranks.
    g.max_rows,  -- Rows received by the most loaded of these ranks.
    g.mean_rows,  -- Mean of the rows received by these ranks.
    g.max_bytes,  -- Largest number of bytes received by one of these ranks; NULL where row sizes are unknown.
    -- max_rows divided by mean_rows, 1 where all loads are equal; NULL if the load of a rank of the group is unknown,
    -- or if nothing is sent.
    CASE
        WHEN g.n_known = g.n_ranks AND g.n_known = coalesce(c.group_size, g.n_ranks) AND g.mean_rows > 0
            THEN g.max_rows / g.mean_rows
    END AS imbalance,
    g.busiest_rank,  -- Rank that receives the most rows, the lowest on ties.
    -- Waiting of all ranks in this collective, ns, caused by uneven work before it; NULL, like the other columns about
    -- waiting, if the lane is refused.
    c.wait_ns,
    c.next_id AS next_collective_id,  -- Next collective of the lane; NULL for the last.
    c.next_kind AS next_kind,  -- Kind of the next collective.
    c.next_wait_ns,  -- Waiting of all ranks in the next collective, ns, caused by uneven work since this collective.
    -- True if the other ranks wait in the next collective for busiest_rank, whose load may be the reason; NULL for the
    -- last.
    c.next_culprit_rank = g.busiest_rank AS is_waited_for
FROM gathered AS g
JOIN met AS c ON c.capture_id = g.capture_id AND c.collective_id = g.collective_id
