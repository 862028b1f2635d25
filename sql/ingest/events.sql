-- One row: an entry of traceEvents.
-- How: the staged entries in their order; exact decimal microseconds become nanoseconds, plus baseTimeNanoseconds; begin events take the time up to their end event.
-- check: unique(trace_id, event_id)
-- Digits are cut and joined as text: a cast through DECIMAL costs 60 µs a row, one through a double loses digits.
-- A ~ in front of a time says that it was quoted on the way to keep its digits.
WITH raw AS (
    SELECT rowid AS event_id, * REPLACE (ltrim(ts, '~') AS ts, ltrim(dur, '~') AS dur)
    FROM raw_events
),
timed AS (
    SELECT
        *,
        CASE
            WHEN contains(ts, 'e') OR contains(ts, 'E') THEN CAST(round(TRY_CAST(ts AS DOUBLE) * 1000) AS BIGINT)
            WHEN contains(ts, '.')
                THEN TRY_CAST(split_part(ts, '.', 1) || rpad(left(split_part(ts, '.', 2), 3), 3, '0') AS BIGINT)
                + CASE WHEN substr(split_part(ts, '.', 2), 4, 1) >= '5' THEN CASE WHEN starts_with(ts, '-') THEN -1 ELSE 1 END ELSE 0 END
            ELSE TRY_CAST(ts AS BIGINT) * 1000
        END AS relative_ns,
        CASE
            WHEN contains(dur, 'e') OR contains(dur, 'E') THEN CAST(round(TRY_CAST(dur AS DOUBLE) * 1000) AS BIGINT)
            WHEN contains(dur, '.')
                THEN TRY_CAST(split_part(dur, '.', 1) || rpad(left(split_part(dur, '.', 2), 3), 3, '0') AS BIGINT)
                + CASE WHEN substr(split_part(dur, '.', 2), 4, 1) >= '5' THEN CASE WHEN starts_with(dur, '-') THEN -1 ELSE 1 END ELSE 0 END
            ELSE TRY_CAST(dur AS BIGINT) * 1000
        END AS own_dur_ns
    FROM raw
),
marks AS (
    SELECT event_id, pid, tid, ph, relative_ns, CASE WHEN ph = 'B' THEN 1 ELSE -1 END AS change
    FROM timed
    WHERE ph IN ('B', 'E') AND relative_ns IS NOT NULL
),
stacked AS (
    SELECT
        *,
        sum(change) OVER (PARTITION BY pid, tid ORDER BY relative_ns, event_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        + CASE WHEN ph = 'E' THEN 1 ELSE 0 END AS depth
    FROM marks
),
paired AS (
    SELECT event_id, ph, lead(ph) OVER level AS next_ph, lead(relative_ns) OVER level - relative_ns AS dur_ns
    FROM stacked
    WINDOW level AS (PARTITION BY pid, tid, depth ORDER BY relative_ns, event_id)
),
found AS (
    SELECT
        t.*, coalesce(t.args, t.attr) AS arguments, coalesce(t.own_dur_ns, b.dur_ns) AS dur_ns,
        json_extract_string(t.args, [
            '$.device', '$.stream', '$.correlation', '$."External id"', '$."Python id"', '$."Python parent id"',
            '$.wait_on_stream', '$.wait_on_cuda_event_record_corr_id', '$.wait_on_cuda_event_id', '$.cuda_sync_kind',
            '$."graph node id"', '$."graph id"', '$.bytes', '$."external id"'
        ]) AS arg
    FROM timed AS t
    LEFT JOIN paired AS b ON b.event_id = t.event_id AND b.ph = 'B' AND b.next_ph = 'E'
)
SELECT
    i.trace_id,  -- The trace.
    i.batch_id,  -- Ingest run that wrote it.
    e.event_id,  -- Position in traceEvents, from 0.
    e.ph,  -- Phase: X complete, B and E begin and end, s t f flow, i instant, C counter, M metadata.
    coalesce(c.canonical, e.cat) AS cat,  -- Category in its canonical spelling; NULL when the event has none.
    e.name,  -- Name.
    e.pid,  -- Process id as text; for GPU work the device.
    e.tid,  -- Thread id as text; for GPU work the stream.
    e.relative_ns + i.base_ns AS ts_ns,  -- Start, ns since the Unix epoch where the trace has a base, else as in the trace.
    e.dur_ns,  -- Duration, ns; NULL where there is none.
    e.relative_ns + i.base_ns + e.dur_ns AS end_ns,  -- End, ns.
    TRY_CAST(e.arg[1] AS BIGINT) AS device,  -- Argument device.
    CASE WHEN NOT starts_with(e.arg[2], '0x') THEN TRY_CAST(e.arg[2] AS BIGINT) END AS stream,  -- Argument stream; NULL for the pointers that HIP calls write.
    TRY_CAST(e.arg[3] AS BIGINT) AS correlation,  -- Argument correlation: joins a call and the GPU work it launched.
    coalesce(TRY_CAST(e.arg[4] AS BIGINT), TRY_CAST(e.arg[14] AS BIGINT)) AS external_id,  -- Argument External id: joins an operator and an execution trace.
    TRY_CAST(e.arg[5] AS BIGINT) AS python_id,  -- Argument Python id of a Python frame.
    TRY_CAST(e.arg[6] AS BIGINT) AS python_parent_id,  -- Argument Python parent id of a Python frame.
    TRY_CAST(e.arg[7] AS BIGINT) AS wait_on_stream,  -- Stream whose event is waited for.
    TRY_CAST(e.arg[8] AS BIGINT) AS wait_on_cuda_event_record_corr_id,  -- Correlation id of the record call waited for.
    TRY_CAST(e.arg[9] AS BIGINT) AS wait_on_cuda_event_id,  -- Id of the event waited for.
    e.arg[10] AS cuda_sync_kind,  -- Kind of a wait, as the GPU's record of it says.
    TRY_CAST(e.arg[11] AS BIGINT) AS graph_node,  -- Node of the CUDA or HIP graph the work belongs to.
    TRY_CAST(e.arg[12] AS BIGINT) AS graph_id,  -- That graph.
    TRY_CAST(e.arg[13] AS BIGINT) AS bytes,  -- Bytes copied or set.
    e.id AS flow_id,  -- Key id: joins the arrows of a flow.
    e.bp,  -- Binding point of a flow's end.
    e.s AS scope,  -- Scope of an instant event.
    CAST(e.arguments AS VARCHAR) AS args,  -- All arguments as JSON; NULL when the event has none.
    CASE
        WHEN coalesce(e.tts, e.tdur, e.cname, e.sf, CAST(e.stack AS VARCHAR)) IS NOT NULL
            THEN CAST(json_object('tts', e.tts, 'tdur', e.tdur, 'cname', e.cname, 'sf', e.sf, 'stack', e.stack) AS VARCHAR)
    END AS extra  -- Further keys of the trace format (tts, tdur, cname, sf, stack) as JSON; NULL when there is none of them.
FROM found AS e
CROSS JOIN _ingest_context AS i
LEFT JOIN categories AS c ON c.raw = e.cat
