-- One row: a window whose graph a profile refuses.
-- How: HTA refuses a synchronization edge between two GPU activities on one stream (2.8.9). Profile default allows it.
SELECT DISTINCT
    k.window_no,  -- The window.
    'a kernel waits for an event of its own stream' AS reason  -- Reason, as text.
FROM _window_waits AS k
JOIN _asked_windows AS w ON w.window_no = k.window_no
JOIN _profiles AS p ON p.trace_profile_id = w.trace_profile_id
WHERE k.is_same_stream AND p.one_wait_per_kernel
