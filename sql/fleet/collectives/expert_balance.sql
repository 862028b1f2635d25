-- One row: a collective of a capture with written split sizes (an all-to-all), and how evenly its ranks are loaded.
-- How: a rank's load is the rows (tokens) that it receives. What an uneven load costs shows where the ranks next meet:
-- who received more works longer, and the others wait in the next collective of the lane.
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
met AS (
    SELECT
        *,
        lead(collective_id) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_id,
        lead(kind) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_kind,
        lead(wait_ns) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_wait_ns,
        lead(culprit_rank) OVER (PARTITION BY capture_id, lane ORDER BY collective_id) AS next_culprit_rank
    FROM collectives
)
SELECT
    g.capture_id,  -- The capture.
    g.collective_id,  -- The collective, in collectives.
    c.lane,  -- The lane, in collective_groups.
    c.step,  -- Profiler step of its launch on the lane's reference rank; NULL outside of steps.
    c.group_name,  -- Process group; NULL where the trace does not say.
    c.group_size,  -- Ranks in the group; NULL where the trace does not say.
    g.n_known AS n_ranks_known,  -- Ranks of the capture whose load is known.
    g.min_rows,  -- Rows that the least loaded of these receives.
    g.max_rows,  -- Rows that the most loaded of these receives.
    g.mean_rows,  -- Rows that one of these receives on average.
    g.max_bytes,  -- Bytes that the most loaded of these receives; NULL where the sizes of rows are unknown.
    -- max_rows divided by mean_rows, 1 where all are equal; NULL if the load of a rank of the group is unknown, or if
    -- nothing is sent.
    CASE
        WHEN g.n_known = g.n_ranks AND g.n_known = coalesce(c.group_size, g.n_ranks) AND g.mean_rows > 0
            THEN g.max_rows / g.mean_rows
    END AS imbalance,
    g.busiest_rank,  -- Rank that receives the most rows, the lowest on ties.
    c.wait_ns,  -- Waiting of all ranks in this collective, ns: before it, what they did was uneven.
    c.next_id AS next_collective_id,  -- The lane's next collective; NULL if this is the last.
    c.next_kind AS next_kind,  -- Its kind.
    c.next_wait_ns,  -- Waiting of all ranks in that one, ns: what they did with the rows was uneven.
    -- The others wait there for the rank that received the most: its load may be why; NULL if this is the last.
    c.next_culprit_rank = g.busiest_rank AS is_waited_for
FROM gathered AS g
JOIN met AS c ON c.capture_id = g.capture_id AND c.collective_id = g.collective_id
