-- One row: GPU work of a window and GPU work that it waited for through an event.
-- How: the waits of _event_waits whose both ends are in the window; HTA keeps the last wait it walks past before the kernel (2.8.7).
WITH work AS (
    SELECT c.window_no, w.view_no, c.event_id, c.stream_key, c.ts_ns, c.ts_ns + c.dur_ns AS end_ns, p.one_wait_per_kernel
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN _profiles AS p ON p.view_no = w.view_no
    WHERE c.side = 'gpu'
),
waiting AS (
    SELECT
        k.window_no, k.event_id, k.stream_key, k.ts_ns, k.one_wait_per_kernel, w.source_kernel_id,
        row_number() OVER (PARTITION BY k.window_no, k.event_id ORDER BY w.wait_end_ns DESC, w.wait_event_id DESC) AS recency
    FROM _event_waits AS w
    JOIN work AS k ON k.view_no = w.view_no AND k.event_id = w.waiting_kernel_id
    WHERE
        w.source_kernel_id IS NOT NULL
        -- HTA looks at a wait when it walks past its end: one that ends after the kernel started comes too late.
        AND (
            NOT k.one_wait_per_kernel
            OR w.wait_end_ns < k.ts_ns OR w.wait_end_ns = k.ts_ns AND w.wait_event_id < k.event_id
        )
)
SELECT DISTINCT
    w.window_no,  -- The window.
    w.event_id,  -- GPU work that waits.
    w.ts_ns,  -- Its start, ns.
    s.event_id AS source_event_id,  -- GPU work that has to end first.
    s.end_ns AS source_end_ns,  -- Its end, ns.
    s.stream_key = w.stream_key AS is_same_stream  -- Both run on one stream: the wait is legal and adds nothing.
FROM waiting AS w
JOIN work AS s ON s.window_no = w.window_no AND s.event_id = w.source_kernel_id
WHERE (w.recency = 1 OR NOT w.one_wait_per_kernel) AND s.event_id <> w.event_id
