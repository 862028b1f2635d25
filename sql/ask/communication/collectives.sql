-- Question: Which collectives cost the most waiting, and who was late?
-- Reading: `transfer_ms` is the shortest kernel over the ranks, the time that the network needs. The rest is waiting
-- for `culprit_rank`.
SELECT
    coalesce(c.job, c.capture_id) AS job, o.kind, o.collective_name, o.group_name, o.step,
    round(o.transfer_ns / 1e6, 3) AS transfer_ms,
    round(o.wait_ns / 1e6, 3) AS wait_ms, o.culprit_rank,
    round(o.bus_gigabytes_per_s, 2) AS bus_gigabytes_per_s, o.refused_reason
FROM collectives AS o
JOIN captures AS c ON o.capture_id = c.capture_id
ORDER BY o.wait_ns DESC NULLS LAST, c.started_at, c.capture_id, o.collective_id
