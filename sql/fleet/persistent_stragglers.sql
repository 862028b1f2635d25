-- One row: a rank that is a straggler in at least three captures of a job.
-- scope: lake
SELECT
    c.job,  -- The job; NULL where its traces tell no name.
    s.rank,  -- The rank.
    count(*) AS n_captures,  -- Captures in which it is there and it can be told.
    TRY_CAST(sum(CASE WHEN s.is_straggler THEN 1 ELSE 0 END) AS BIGINT) AS n_straggler,  -- Captures in which it is a straggler.
    TRY_CAST(sum(s.caused_wait_ns) AS BIGINT) AS caused_wait_ns,  -- Waiting of the others for it in all of them, ns.
    max(c.started_at) FILTER (WHERE s.is_straggler) AS last_seen_at  -- Start of the last capture in which it is one, UTC.
FROM straggler_ranks AS s
JOIN captures AS c ON c.capture_id = s.capture_id
WHERE s.is_straggler IS NOT NULL
GROUP BY c.job, s.rank
HAVING sum(CASE WHEN s.is_straggler THEN 1 ELSE 0 END) >= 3
