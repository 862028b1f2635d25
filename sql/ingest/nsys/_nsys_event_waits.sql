-- One row: a wait in an export of Nsight Systems, with the record of the CUDA event that it waits for.
-- How: match by the number of the record (event_sync) if the export has one. Otherwise take the last record of the
-- event before the waiting call, as Kineto does. Waits for a stream or a context have no record. In exports of several
-- processes all waits name device 0. A context has one device, so the context's GPU work identifies it.
WITH called AS (
    SELECT correlation, min(start_ns) AS start_ns
    FROM _nsys_calls
    WHERE correlation IS NOT NULL
    GROUP BY correlation
),
records AS (
    SELECT r.context, r.stream, r.correlation, r.cuda_event, nullif(r.event_sync, 0) AS event_sync, c.start_ns
    FROM _nsys_event_records AS r
    LEFT JOIN called AS c ON c.correlation = r.correlation
),
timed_records AS (
    SELECT context, stream, correlation, cuda_event, start_ns FROM records WHERE start_ns IS NOT NULL
),
contexts AS (
    SELECT context, min(device) AS device
    FROM _nsys_work
    GROUP BY context
    HAVING count(DISTINCT device) = 1
),
waits AS (
    SELECT
        row_number() OVER () AS wait_no,
        w.*,
        m.meaning AS kind,
        coalesce(c.start_ns, w.start_ns) AS called_ns,
        m.meaning IN ('Event Sync', 'Stream Wait Event') AS is_for_event
    FROM _nsys_waits AS w
    LEFT JOIN _nsys_meanings AS m ON m.enum = 'ENUM_CUPTI_SYNC_TYPE' AND m.id = w.sync_type
    LEFT JOIN called AS c ON c.correlation = w.correlation
),
last_records AS (
    -- A number should belong to one record. If several share it, keep the last, because all pairs of waits and records
    -- would be too many.
    SELECT event_sync, stream, correlation
    FROM records
    WHERE event_sync IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY event_sync ORDER BY start_ns DESC NULLS LAST, correlation) = 1
),
numbered AS (
    SELECT w.wait_no, r.stream, r.correlation
    FROM waits AS w
    JOIN last_records AS r ON r.event_sync = w.event_sync
    WHERE w.is_for_event
),
latest AS (
    SELECT w.wait_no, r.stream, r.correlation
    FROM waits AS w
    ASOF JOIN timed_records AS r
        ON r.context = w.context AND r.cuda_event = w.cuda_event AND r.start_ns <= w.called_ns
    WHERE w.is_for_event
)
SELECT
    w.start_ns,  -- Start, ns since the session's start.
    w.end_ns,  -- End, ns.
    coalesce(x.device, w.device) AS device,  -- CUDA device of the context's work if unique, else told_device.
    w.device AS told_device,  -- CUDA device in the row of the wait.
    CASE WHEN w.stream IN (4294967295, -1) THEN -1 ELSE w.stream END AS stream,  -- Stream; -1 for none, as in Kineto.
    w.correlation,  -- Correlation id.
    w.context,  -- CUDA context.
    w.kind,  -- Kind of wait, in Kineto's words; NULL if unknown.
    w.sync_type,  -- Kind of wait, as the number in the export.
    w.is_for_event,  -- Whether it waits for a CUDA event.
    CASE WHEN w.is_for_event THEN w.cuda_event END AS cuda_event,  -- CUDA event waited for; NULL for other waits.
    coalesce(n.stream, l.stream) AS record_stream,  -- Stream that recorded the event; NULL if unknown.
    coalesce(n.correlation, l.correlation) AS record_correlation  -- Correlation id of the record call.
FROM waits AS w
LEFT JOIN numbered AS n ON n.wait_no = w.wait_no
LEFT JOIN latest AS l ON l.wait_no = w.wait_no
LEFT JOIN contexts AS x ON x.context = w.context
