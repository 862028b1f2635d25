-- One row: a run of calls that ask whether GPU work has ended, one after another (_polls).
-- How: it may be a loop that waits if it has two calls and more, none of which begins before the one before it has
-- ended, with no more than 2 ms between two of them; of only two, 50 us. One of three calls, or of 20 us, tells what
-- its thread asks for.
WITH sums AS (
    SELECT
        trace_profile_id, thread_id, min(process_no) AS process_no, run, count(*) AS n_polls,
        min(start_ns) AS first_ns, max(CASE WHEN is_last THEN event_id END) AS last_event_id, max(end_ns) AS end_ns,
        max(CASE WHEN is_last THEN before_ns END) AS before_ns, max(pause_ns) AS pause_ns,
        min(pause_ns) AS least_pause_ns
    FROM _polls
    GROUP BY trace_profile_id, thread_id, run
)
SELECT
    trace_profile_id,  -- The trace as a profile sees it.
    thread_id,  -- The thread.
    process_no,  -- Its process.
    run,  -- Number of the run on the thread.
    n_polls,  -- Number of calls.
    last_event_id,  -- The last of them.
    first_ns,  -- Start of the first, ns.
    before_ns,  -- Start of the last but one, ns.
    end_ns,  -- End of the last, ns.
    -- It may be a loop that waits.
    n_polls > 1 AND least_pause_ns >= 0
    AND pause_ns <= CASE WHEN n_polls > 2 THEN 2000000 ELSE 50000 END AS may_wait,
    n_polls > 2 OR n_polls = 2 AND end_ns - first_ns > 20000 AS tells  -- It tells what its thread asks for.
FROM sums
