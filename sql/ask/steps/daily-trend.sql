-- Question: How do step time, idling and communication of a job develop from day to day?
-- Reading: One row per job and day, medians over the day's captures; captures on other GPUs or with another number of
-- ranks are separate rows. Captures without a job are excluded, because they may be of different jobs. The change is
-- relative to the last day with such captures. `tracelake regressions` tests whether a change is more than noise.
SELECT
    job, began_on, hardware, n_ranks, n_captures, round(step_ns / 1e6, 3) AS step_ms,
    round(step_change_percent, 1) AS step_change_percent, round(idle_percent, 1) AS idle_percent,
    round(exposed_communication_percent, 1) AS exposed_comm_percent
FROM job_days
WHERE job IS NOT NULL
ORDER BY job, hardware, n_ranks, began_on
