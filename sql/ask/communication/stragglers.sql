-- Question: Which rank do the others wait for?
-- Reading: `caused_percent` is the share of all waiting that a rank caused. If `culprit_uncertain` is true,
-- durations and clocks disagree too often, or the clocks are not aligned.
-- Words: straggler, slow rank
SELECT
    c.job, c.capture_id, s.rank, s.n_collectives, round(s.wait_ns / 1e6, 2) AS waited_ms,
    round(s.caused_wait_ns / 1e6, 2) AS caused_wait_ms, round(s.caused_percent, 1) AS caused_percent,
    s.culprit_uncertain,
    s.is_straggler
FROM straggler_ranks AS s
JOIN captures AS c ON s.capture_id = c.capture_id
ORDER BY s.caused_wait_ns DESC, c.started_at, c.capture_id, s.rank
