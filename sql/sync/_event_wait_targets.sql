-- One row: a stream's wait for an event, and GPU work that it may have held up.
-- How: the next launch of its thread on its stream (HTA 2.8.8). If the stream is unknown: the next launch of the
-- thread, and the first on each other stream before the next such call of the thread. Times decide between them.
WITH launches AS (
    SELECT
        l.trace_profile_id, l.launch_event_id, l.thread_id, coalesce(o.order_thread_id, l.thread_id) AS order_thread_id,
        l.start_ns, l.stream_key, l.first_gpu_event_id
    FROM _launches AS l
    LEFT JOIN _thread_roles AS o ON o.trace_profile_id = l.trace_profile_id AND o.thread_id = l.thread_id
),
stream_waits AS (
    SELECT * FROM _waits_for_events WHERE sync_kind = 'Stream Wait Event' AND is_wait
),
after_wait AS (
    SELECT
        *,
        min(CASE WHEN wait_event_id IS NULL THEN ordinal END) OVER (
            PARTITION BY trace_profile_id, thread_id, stream_key ORDER BY ordinal
            ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS launch_ordinal
    FROM (
        SELECT
            *,
            row_number() OVER (
                PARTITION BY trace_profile_id, thread_id, stream_key
                ORDER BY start_ns, CASE WHEN wait_event_id IS NULL THEN 0 ELSE 1 END, order_id
            ) AS ordinal
        FROM (
            SELECT
                l.trace_profile_id, l.thread_id, l.stream_key, l.start_ns, l.launch_event_id AS order_id,
                l.first_gpu_event_id, CAST(NULL AS BIGINT) AS wait_event_id
            FROM launches AS l
            WHERE
                EXISTS (
                    SELECT 1 FROM stream_waits AS w WHERE w.trace_profile_id = l.trace_profile_id
                        AND w.thread_id = l.thread_id
                        AND w.stream_key = l.stream_key
                )
            UNION ALL
            SELECT trace_profile_id, thread_id, stream_key, call_ts_ns, wait_call_event_id, NULL, wait_event_id
            FROM stream_waits
            WHERE has_row
        ) AS both_kinds
    ) AS placed
),
-- Calls whose stream is unknown, and launches, in the order of their thread: the last such call before each launch, and
-- the first launch after each such call.
in_order AS (
    SELECT
        *,
        max(call_no) OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY ordinal
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS last_call_no,
        min(CASE WHEN call_no IS NULL THEN ordinal END) OVER (
            PARTITION BY trace_profile_id, order_thread_id ORDER BY ordinal
            ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS next_ordinal
    FROM (
        SELECT
            *,
            row_number() OVER (PARTITION BY trace_profile_id, order_thread_id ORDER BY at_ns, turn, order_id) AS ordinal
        FROM (
            SELECT
                trace_profile_id, order_thread_id, call_ts_ns AS at_ns, 0 AS turn, wait_call_event_id AS order_id,
                wait_event_id, CAST(NULL AS BIGINT) AS first_gpu_event_id, CAST(NULL AS BIGINT) AS stream_key,
                row_number() OVER (
                    PARTITION BY trace_profile_id, order_thread_id ORDER BY call_ts_ns, wait_call_event_id
                ) AS call_no
            FROM stream_waits
            WHERE NOT has_row
            UNION ALL
            SELECT
                l.trace_profile_id, l.order_thread_id, l.start_ns, 1, l.launch_event_id, NULL, l.first_gpu_event_id,
                l.stream_key, NULL
            FROM launches AS l
            WHERE
                EXISTS (
                    SELECT 1 FROM stream_waits AS w WHERE w.trace_profile_id = l.trace_profile_id
                        AND w.order_thread_id = l.order_thread_id
                        AND NOT w.has_row
                )
        ) AS both_kinds
    ) AS placed
),
-- Work that a row's wait held up was not held up by a call without a row that came earlier.
held_by_rows AS (
    SELECT DISTINCT l.trace_profile_id, l.first_gpu_event_id
    FROM after_wait AS w
    JOIN after_wait AS l
        ON l.trace_profile_id = w.trace_profile_id AND l.thread_id = w.thread_id
            AND l.stream_key = w.stream_key AND l.ordinal = w.launch_ordinal
    WHERE w.wait_event_id IS NOT NULL
),
first_launches AS (
    SELECT trace_profile_id, order_thread_id, last_call_no, first_gpu_event_id, ordinal
    FROM in_order
    WHERE wait_event_id IS NULL AND last_call_no IS NOT NULL
    QUALIFY
        row_number() OVER (
            PARTITION BY trace_profile_id, order_thread_id, last_call_no, stream_key ORDER BY ordinal
        ) = 1
)
SELECT
    w.trace_profile_id,  -- The trace as a profile sees it.
    w.wait_event_id,  -- The wait.
    l.first_gpu_event_id AS waiting_kernel_id,  -- GPU work that waits.
    TRUE AS is_next  -- It is the next that the thread launched, or on the stream that is known to wait.
FROM after_wait AS w
JOIN after_wait AS l
    ON l.trace_profile_id = w.trace_profile_id AND l.thread_id = w.thread_id
        AND l.stream_key = w.stream_key AND l.ordinal = w.launch_ordinal
WHERE w.wait_event_id IS NOT NULL
UNION ALL
SELECT w.trace_profile_id, w.wait_event_id, l.first_gpu_event_id, TRUE
FROM in_order AS w
JOIN in_order AS l
    ON l.trace_profile_id = w.trace_profile_id AND l.order_thread_id = w.order_thread_id AND l.ordinal = w.next_ordinal
WHERE w.wait_event_id IS NOT NULL
UNION ALL
SELECT w.trace_profile_id, w.wait_event_id, l.first_gpu_event_id, FALSE
FROM in_order AS w
JOIN first_launches AS l
    ON l.trace_profile_id = w.trace_profile_id AND l.order_thread_id = w.order_thread_id
        AND l.last_call_no = w.call_no
LEFT JOIN held_by_rows AS h
    ON h.trace_profile_id = l.trace_profile_id AND h.first_gpu_event_id = l.first_gpu_event_id
WHERE w.wait_event_id IS NOT NULL AND l.ordinal > w.next_ordinal AND h.first_gpu_event_id IS NULL
