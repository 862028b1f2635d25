-- Question: Which ranks are stragglers again and again?
-- Reading: The rank is a straggler in at least three captures of a job, so its machine is likely at fault. Captures
-- without a job are excluded. `tracelake ask stragglers` shows each capture.
-- Words: straggler, slow rank
SELECT job, rank, n_captures, n_straggler, round(caused_wait_ns / 1e6, 2) AS caused_wait_ms, last_seen_at
FROM persistent_stragglers
ORDER BY caused_wait_ns DESC, job, rank
