-- One row: a rank that is a straggler in at least three captures of a job. Captures without a job do not count, because
-- they may be of different jobs.
-- scope: lake
SELECT
    c.job,  -- The job.
    s.rank,  -- The rank.
    count(*) AS n_captures,  -- Captures that contain the rank and in which stragglers can be determined.
    -- Captures in which the rank is a straggler.
    TRY_CAST(sum(CASE WHEN s.is_straggler THEN 1 ELSE 0 END) AS BIGINT) AS n_straggler,
    -- Waiting of other ranks for this rank in all n_captures captures, ns.
    TRY_CAST(sum(s.caused_wait_ns) AS BIGINT) AS caused_wait_ns,
    -- Start of the latest capture in which the rank is a straggler, UTC.
    max(c.started_at) FILTER (WHERE s.is_straggler) AS last_seen_at
FROM straggler_ranks AS s
JOIN captures AS c ON c.capture_id = s.capture_id
WHERE s.is_straggler IS NOT NULL AND c.job IS NOT NULL
GROUP BY c.job, s.rank
HAVING sum(CASE WHEN s.is_straggler THEN 1 ELSE 0 END) >= threshold('persistent_captures')
