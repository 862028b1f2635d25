-- One row: a wait for an event whose record or stream the trace does not state, what it held up, and the GPU work that
-- it most likely waited for.
-- How: 1. The record is the one that is stated or shown; otherwise the last record call of the thread (a CUDA, HIP or
-- driver call) before the wait. Of several waits in a row, each has a record of its own, in order; waits for one event
-- number share theirs, and a record that belongs to another event number is left out. If times contradict it, the next
-- older record counts, up to the fourth; or the last one of another thread, if work that its stream had then ended in
-- the gap before the waiting work, as said below.
-- 2. The record's stream is any other stream whose last work before the record had ended when the waiting work began
-- (within 2 us; clocks disagree). Likely is the one on which the recording thread launched last, or the only other
-- stream. The first of these counts: likely work that ended at most 10 us before the waiting work, in the gap before
-- it; any work that ended in the gap, at most 50 us before, or filling half of it; likely work; any that ended in the
-- gap.
-- A wait without any record before it waits for work launched before the wait.
WITH writing_rows AS (
    SELECT DISTINCT trace_profile_id
    FROM _waits_for_events
    WHERE has_row AND sync_kind = 'Stream Wait Event'
),
inferring AS (
    SELECT DISTINCT trace_profile_id FROM _waits_for_events WHERE evidence <> 'record_and_stream'
),
-- Those of which all is stated take part, because no other wait was for the same work.
waits AS (
    SELECT w.*, s.trace_profile_id IS NOT NULL AS writes_rows
    FROM _waits_for_events AS w
    JOIN inferring AS i ON i.trace_profile_id = w.trace_profile_id
    LEFT JOIN writing_rows AS s ON s.trace_profile_id = w.trace_profile_id
),
recording_threads AS (
    SELECT DISTINCT trace_profile_id, order_thread_id FROM _event_records
),
work AS (
    SELECT
        h.trace_profile_id, h.event_id, h.stream_key, h.start_ns, h.end_ns, h.launch_event_id,
        -- Work without a launch was launched before all else: the earliest time there is.
        coalesce(h.launch_ts_ns, -9223372036854775807) AS launch_ts_ns,
        coalesce(o.order_thread_id, c.thread_id) AS order_thread_id,
        greatest(h.busy_until_ns, h.launch_ts_ns) AS free_ns, h.busy_until_ns IS NULL AS is_first
    FROM _gpu_history AS h
    JOIN inferring AS i ON i.trace_profile_id = h.trace_profile_id
    LEFT JOIN _loaded_events AS c ON c.trace_profile_id = h.trace_profile_id AND c.event_id = h.launch_event_id
    LEFT JOIN _thread_roles AS o ON o.trace_profile_id = c.trace_profile_id AND o.thread_id = c.thread_id
    WHERE h.scope_no < 0
),
-- Records that a wait states or a cuda_event row shows belong to that wait's event.
known AS (
    SELECT DISTINCT trace_profile_id, record_event_id, event_number
    FROM waits
    WHERE record_event_id IS NOT NULL
),
free_records AS (
    SELECT
        r.trace_profile_id, r.record_event_id, r.start_ns, r.order_thread_id,
        row_number() OVER (PARTITION BY r.trace_profile_id, r.order_thread_id ORDER BY r.n_recorded) AS n_recorded
    FROM _event_records AS r
    LEFT JOIN known AS k ON k.trace_profile_id = r.trace_profile_id AND k.record_event_id = r.record_event_id
    WHERE k.record_event_id IS NULL
),
-- How many of the others, and how many launches, of its thread precede each wait for which nothing else tells the
-- record.
numbered AS (
    SELECT
        trace_profile_id, order_thread_id, wait_event_id,
        count(CASE WHEN turn = 0 THEN 1 END) OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY at_ns, order_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_recorded,
        count(CASE WHEN turn = 2 THEN 1 END) OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY at_ns, order_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_launched
    FROM (
        SELECT
            trace_profile_id, order_thread_id, start_ns AS at_ns, 0 AS turn, record_event_id AS order_id,
            CAST(NULL AS BIGINT) AS wait_event_id
        FROM free_records
        UNION ALL
        SELECT trace_profile_id, order_thread_id, call_ts_ns, 1, wait_call_event_id, wait_event_id
        FROM waits
        WHERE evidence IN ('stream', 'calls')
        UNION ALL
        SELECT DISTINCT trace_profile_id, order_thread_id, launch_ts_ns, 2, launch_event_id, CAST(NULL AS BIGINT)
        FROM work
        WHERE launch_event_id IS NOT NULL
    ) AS all_kinds
),
in_a_row AS (
    SELECT
        w.trace_profile_id,
        w.wait_event_id,
        w.order_thread_id,
        w.event_number,
        w.call_ts_ns,
        n.n_recorded,
        n.n_launched,
        max(w.call_ts_ns) OVER (
            PARTITION BY
                w.trace_profile_id, w.order_thread_id, n.n_recorded, n.n_launched,
                coalesce(w.event_number, -1 - w.wait_event_id)
        ) AS last_ns
    FROM waits AS w
    JOIN numbered AS n
        ON n.trace_profile_id = w.trace_profile_id AND n.order_thread_id = w.order_thread_id
            AND n.wait_event_id = w.wait_event_id
),
placed AS (
    SELECT
        *,
        n_recorded + 1 - dense_rank() OVER (
            PARTITION BY trace_profile_id, order_thread_id, n_recorded, n_launched
            ORDER BY last_ns DESC, coalesce(event_number, -1 - wait_event_id)
        ) AS n_th
    FROM in_a_row
),
-- A record has one event. Where waits for several event numbers may have it, it belongs to the number whose record
-- before it is the oldest: events that are recorded again and again take turns.
contested AS (
    SELECT
        *, lag(n_th) OVER (
            PARTITION BY trace_profile_id, order_thread_id, event_number ORDER BY n_th
        ) AS last_n_th
    FROM (
        SELECT trace_profile_id, order_thread_id, n_th, event_number, min(call_ts_ns) AS call_ts_ns
        FROM placed
        WHERE event_number IS NOT NULL
        GROUP BY trace_profile_id, order_thread_id, n_th, event_number
    ) AS claims
),
owners AS (
    SELECT trace_profile_id, order_thread_id, n_th, event_number
    FROM contested
    QUALIFY
        row_number() OVER (
            PARTITION BY trace_profile_id, order_thread_id, n_th
            ORDER BY last_n_th NULLS FIRST, call_ts_ns, event_number
        ) = 1
),
older AS (
    SELECT 0 AS n
    UNION ALL
    SELECT 1
    UNION ALL
    SELECT 2
    UNION ALL
    SELECT 3
),
-- The last record before a wait of which another wait shows that it is of the same event.
of_same_event AS (
    SELECT
        trace_profile_id, wait_event_id, order_thread_id,
        max(record_no) OVER (
            PARTITION BY trace_profile_id, event_number ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS record_no
    FROM (
        SELECT
            k.trace_profile_id, k.event_number, r.start_ns AS at_ns, 0 AS turn, r.record_no,
            CAST(NULL AS BIGINT) AS wait_event_id, CAST(NULL AS BIGINT) AS order_thread_id
        FROM known AS k
        JOIN _event_records AS r
            ON r.trace_profile_id = k.trace_profile_id AND r.record_event_id = k.record_event_id
        WHERE k.event_number IS NOT NULL
        UNION ALL
        SELECT trace_profile_id, event_number, call_ts_ns, 1, NULL, wait_event_id, order_thread_id
        FROM placed
        WHERE event_number IS NOT NULL
    ) AS both_kinds
),
-- Materialized, here and below: DuckDB thinks that these are many rows, and would join others on the trace alone.
numbers_asked AS MATERIALIZED (
    SELECT p.trace_profile_id, p.wait_event_id, p.order_thread_id, p.event_number, p.n_th - o.n AS n_recorded
    FROM placed AS p
    CROSS JOIN older AS o
),
likely_records AS (
    SELECT p.trace_profile_id, p.wait_event_id, p.order_thread_id, r.record_event_id, r.start_ns
    FROM numbers_asked AS p
    JOIN free_records AS r
        ON r.trace_profile_id = p.trace_profile_id AND r.order_thread_id = p.order_thread_id
            AND r.n_recorded = p.n_recorded
    LEFT JOIN owners AS c
        ON c.trace_profile_id = p.trace_profile_id AND c.order_thread_id = p.order_thread_id
            AND c.n_th = r.n_recorded
    WHERE coalesce(c.event_number = p.event_number, TRUE)
    UNION ALL
    SELECT o.trace_profile_id, o.wait_event_id, o.order_thread_id, r.record_event_id, r.start_ns
    FROM of_same_event AS o
    JOIN _event_records AS r ON r.trace_profile_id = o.trace_profile_id AND r.record_no = o.record_no
    WHERE o.wait_event_id IS NOT NULL
),
-- The last record of each other thread before a wait.
of_other_threads AS (
    SELECT
        trace_profile_id, order_thread_id, wait_event_id,
        count(CASE WHEN turn = 0 THEN 1 END) OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_recorded
    FROM (
        SELECT
            trace_profile_id, order_thread_id, start_ns AS at_ns, 0 AS turn, CAST(NULL AS BIGINT) AS wait_event_id
        FROM _event_records
        UNION ALL
        SELECT p.trace_profile_id, t.order_thread_id, p.call_ts_ns, 1, p.wait_event_id
        FROM placed AS p
        JOIN recording_threads AS t
            ON t.trace_profile_id = p.trace_profile_id AND t.order_thread_id <> p.order_thread_id
    ) AS both_kinds
),
-- The record or, where there is none, the wait itself, by which the work had to be launched.
candidates AS (
    SELECT
        trace_profile_id, wait_event_id, order_thread_id, record_event_id, record_event_id AS mark_event_id,
        start_ns AS mark_ns, FALSE AS is_of_other_thread,
        row_number() OVER (
            PARTITION BY trace_profile_id, wait_event_id ORDER BY start_ns DESC, record_event_id DESC
        ) AS age
    FROM likely_records
    UNION ALL
    SELECT
        o.trace_profile_id, o.wait_event_id, o.order_thread_id, r.record_event_id, r.record_event_id, r.start_ns, TRUE,
        9
    FROM of_other_threads AS o
    JOIN _event_records AS r
        ON r.trace_profile_id = o.trace_profile_id AND r.order_thread_id = o.order_thread_id
            AND r.n_recorded = o.n_recorded
    WHERE o.wait_event_id IS NOT NULL
    UNION ALL
    SELECT
        w.trace_profile_id, w.wait_event_id, r.order_thread_id, r.record_event_id, r.record_event_id, r.start_ns, FALSE,
        1
    FROM waits AS w
    JOIN _event_records AS r
        ON r.trace_profile_id = w.trace_profile_id AND r.record_event_id = w.record_event_id
    WHERE w.evidence NOT IN ('stream', 'calls')
    UNION ALL
    SELECT
        p.trace_profile_id, p.wait_event_id, p.order_thread_id, NULL, w.wait_call_event_id, p.call_ts_ns, FALSE,
        10
    FROM placed AS p
    JOIN waits AS w ON w.trace_profile_id = p.trace_profile_id AND w.wait_event_id = p.wait_event_id
    LEFT JOIN likely_records AS r ON r.trace_profile_id = p.trace_profile_id AND r.wait_event_id = p.wait_event_id
    WHERE r.wait_event_id IS NULL
),
stream_list AS (
    SELECT DISTINCT trace_profile_id, stream_key FROM work
),
marks AS (
    SELECT DISTINCT c.trace_profile_id, c.mark_event_id, c.mark_ns, c.order_thread_id, s.stream_key
    FROM candidates AS c
    JOIN stream_list AS s ON s.trace_profile_id = c.trace_profile_id
),
-- Of the work launched on each stream before each mark: the latest end, and the last launch of the mark's thread.
states AS (
    SELECT
        trace_profile_id, stream_key, mark_event_id,
        max(end_ns) OVER (
            PARTITION BY trace_profile_id, stream_key ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS end_ns,
        max(CASE WHEN turn = 0 THEN at_ns END) OVER (
            PARTITION BY trace_profile_id, stream_key, order_thread_id ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS launched_ns
    FROM (
        SELECT
            trace_profile_id, stream_key, order_thread_id, launch_ts_ns AS at_ns, 0 AS turn,
            CAST(NULL AS BIGINT) AS mark_event_id, end_ns
        FROM work
        UNION ALL
        SELECT trace_profile_id, stream_key, order_thread_id, mark_ns, 1, mark_event_id, NULL FROM marks
    ) AS both_kinds
),
candidate_states AS MATERIALIZED (
    SELECT
        c.trace_profile_id, c.wait_event_id, c.record_event_id, c.mark_event_id, c.age, c.is_of_other_thread,
        s.stream_key, s.end_ns, s.launched_ns
    FROM candidates AS c
    JOIN states AS s ON s.trace_profile_id = c.trace_profile_id AND s.mark_event_id = c.mark_event_id
    WHERE s.end_ns IS NOT NULL
),
ends AS (
    SELECT trace_profile_id, stream_key, end_ns, max(event_id) AS event_id, max(start_ns) AS start_ns
    FROM work
    GROUP BY trace_profile_id, stream_key, end_ns
),
-- What each wait held up: work, which began no earlier than 2 us before what it waited for ended; or a call, which
-- returned up to 10 us before that (of a longer call 1 %, at most 50 us).
held_up AS MATERIALIZED (
    SELECT
        w.trace_profile_id,
        w.wait_event_id,
        w.evidence,
        w.has_source_stream,
        w.source_stream_key,
        t.waiting_kernel_id,
        t.is_next,
        k.stream_key, k.start_ns, k.start_ns + 2000 AS until_ns, k.free_ns,
        t.is_next AND (w.has_row OR NOT w.writes_rows OR k.is_first) AS may_be_likely,
        w.has_row OR NOT w.writes_rows AS may_be_weak
    FROM waits AS w
    JOIN _event_wait_targets AS t
        ON t.trace_profile_id = w.trace_profile_id AND t.wait_event_id = w.wait_event_id
    JOIN work AS k ON k.trace_profile_id = w.trace_profile_id AND k.event_id = t.waiting_kernel_id
    UNION ALL
    SELECT
        trace_profile_id, wait_event_id, evidence, has_source_stream, source_stream_key, NULL, TRUE, NULL, call_end_ns,
        call_end_ns + greatest(10000, least(50000, (call_end_ns - call_ts_ns) // 100)), call_ts_ns, TRUE, TRUE
    FROM waits
    WHERE sync_kind = 'Event Sync'
),
possible AS (
    SELECT
        h.*, s.record_event_id, s.age, s.is_of_other_thread, s.stream_key AS on_stream_key, s.end_ns,
        -- The recording thread's last launch on another stream was on this one, or there is no other.
        row_number() OVER (
            PARTITION BY h.trace_profile_id, h.wait_event_id, h.waiting_kernel_id, s.mark_event_id
            ORDER BY s.launched_ns DESC NULLS LAST, s.stream_key
        ) = 1
        AND (
            s.launched_ns IS NOT NULL
            OR count(*) OVER (
                PARTITION BY h.trace_profile_id, h.wait_event_id, h.waiting_kernel_id, s.mark_event_id
            ) = 1
        ) AS is_last_launched
    FROM held_up AS h
    JOIN candidate_states AS s
        ON s.trace_profile_id = h.trace_profile_id AND s.wait_event_id = h.wait_event_id
    WHERE
        CASE
            WHEN h.has_source_stream THEN s.stream_key = h.source_stream_key
            ELSE h.stream_key IS NULL OR s.stream_key <> h.stream_key
        END
),
ranked AS (
    SELECT
        p.trace_profile_id, p.wait_event_id, p.waiting_kernel_id, p.is_next, p.record_event_id, p.age, p.end_ns,
        p.evidence, e.event_id AS source_kernel_id, p.has_source_stream OR p.is_last_launched AS is_likely,
        CASE
            WHEN p.evidence IN ('record_and_stream', 'cuda_event') THEN 1
            WHEN e.start_ns >= p.start_ns OR p.end_ns > p.until_ns THEN NULL
            WHEN p.end_ns > p.free_ns AND p.start_ns - p.end_ns <= 10000 AND p.is_last_launched THEN 1
            WHEN p.end_ns > p.free_ns AND p.start_ns - p.end_ns <= 50000 THEN 2
            WHEN p.end_ns > p.free_ns AND 2 * (p.end_ns - greatest(p.free_ns, e.start_ns)) >= p.start_ns - p.free_ns
                THEN 3
            WHEN p.is_of_other_thread THEN NULL
            WHEN p.is_last_launched AND p.may_be_likely AND p.record_event_id IS NOT NULL THEN 4
            WHEN p.end_ns > p.free_ns AND p.may_be_weak THEN 5
        END AS tier
    FROM possible AS p
    JOIN ends AS e
        ON e.trace_profile_id = p.trace_profile_id AND e.stream_key = p.on_stream_key AND e.end_ns = p.end_ns
    UNION ALL
    -- The record alone, of which no work can have been waited for.
    SELECT c.trace_profile_id, c.wait_event_id, NULL, TRUE, c.record_event_id, c.age, NULL, w.evidence, NULL, FALSE, 9
    FROM candidates AS c
    JOIN waits AS w ON w.trace_profile_id = c.trace_profile_id AND w.wait_event_id = c.wait_event_id
    WHERE c.age = 1
),
-- Of several waits of one piece of work, what times support belongs to the one on whose stream it is likely to be.
shared AS (
    SELECT
        *,
        bool_or(tier <= 4 AND is_likely) OVER (
            PARTITION BY trace_profile_id, waiting_kernel_id, source_kernel_id
        ) AS has_likely_wait
    FROM ranked
    WHERE tier IS NOT NULL
),
supported AS (
    SELECT *, min(tier) OVER (PARTITION BY trace_profile_id, wait_event_id) AS best_tier
    FROM shared
    WHERE tier > 3 OR is_likely OR NOT has_likely_wait
)
SELECT
    trace_profile_id,  -- The trace as a profile sees it.
    wait_event_id,  -- The wait.
    record_event_id,  -- The record; NULL where none of the thread precedes the wait.
    waiting_kernel_id,  -- GPU work that waits; NULL where the call does (Event Sync).
    source_kernel_id,  -- GPU work that had to end first; NULL where none fits.
    is_next,  -- As in _event_wait_targets.
    tier  -- How well times support it: 1 (closely) to 5, see How; 9 where no work fits.
FROM supported
WHERE evidence <> 'record_and_stream' AND (tier < 9 OR best_tier = 9)
QUALIFY
    row_number() OVER (
        PARTITION BY trace_profile_id, wait_event_id, waiting_kernel_id
        ORDER BY tier, age, end_ns DESC, source_kernel_id DESC
    ) = 1
