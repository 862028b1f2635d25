-- One row: an entry of traceEvents.
-- How: entries are in file order. Exact decimal microseconds become nanoseconds, plus baseTimeNanoseconds. A begin
-- event gets its duration from its end event (_begin_end, after all events are read).
-- The query runs on one chunk of the file at a time. event_id counts within the chunk, before any join; the reader
-- sorts the rows by event_id and adds the number of earlier entries.
-- check: unique(trace_id, event_id)
-- Digits are cut and joined as text, because a cast through DECIMAL costs 60 us per row and a cast through a double
-- loses digits. If a double can represent the nanoseconds of all times in a chunk, the reader supplies ts_us and dur_us
-- instead of the text.
-- A leading ~ means that the reader quoted the time to keep its digits (~~: the text itself starts with ~).
-- Times are within 2^62 - 2^53 ns of zero (4602678819172646912) and durations within 2^53 ns (9007199254740992; see
-- pipelines/readers/kineto/numbers.py), so that no sum of two overflows. In microseconds, these limits are truncated to
-- whole numbers.
WITH raw AS (
    SELECT
        row_number() OVER () - 1 AS event_id,
        * REPLACE (
            CASE WHEN starts_with(ts, '~') THEN substr(ts, 2) ELSE ts END AS ts,
            CASE WHEN starts_with(dur, '~') THEN substr(dur, 2) ELSE dur END AS dur
        )
    FROM raw_events
),
sized AS (
    -- The times as doubles, which are exact for whole microseconds of this size; NULL for text that is not a number. A
    -- cast to BIGINT would accept 0x10.
    SELECT
        * EXCLUDE (ts_us, dur_us),
        coalesce(ts_us, TRY_CAST(ts AS DOUBLE)) AS ts_us,
        contains(ts, '.') AS ts_has_point,
        coalesce(dur_us, TRY_CAST(dur AS DOUBLE)) AS dur_us,
        contains(dur, '.') AS dur_has_point
    FROM raw
),
found AS (
    SELECT
        *,
        CASE
            WHEN NOT coalesce(ts_us BETWEEN -4602678819172646 AND 4602678819172646, FALSE) THEN NULL
            WHEN ts_has_point
                THEN CASE
                    WHEN contains(ts, 'e') OR contains(ts, 'E') THEN CAST(round(ts_us * 1000) AS BIGINT)
                    WHEN substr(ts, -4, 1) = '.' THEN TRY_CAST(replace(ts, '.', '') AS BIGINT)
                    ELSE
                        TRY_CAST(split_part(ts, '.', 1) || rpad(left(split_part(ts, '.', 2), 3), 3, '0') AS BIGINT)
                        + CASE
                            WHEN substr(split_part(ts, '.', 2), 4, 1) >= '5'
                                THEN CASE WHEN starts_with(ts, '-') THEN -1 ELSE 1 END
                            ELSE 0
                        END
                END
            ELSE CAST(trunc(ts_us) AS BIGINT) * 1000 + CAST(round((ts_us - trunc(ts_us)) * 1000) AS BIGINT)
        END AS relative_ns,
        CASE
            WHEN NOT coalesce(dur_us BETWEEN -9007199254740 AND 9007199254740, FALSE) THEN NULL
            WHEN dur_has_point
                THEN CASE
                    WHEN contains(dur, 'e') OR contains(dur, 'E') THEN CAST(round(dur_us * 1000) AS BIGINT)
                    WHEN substr(dur, -4, 1) = '.' THEN TRY_CAST(replace(dur, '.', '') AS BIGINT)
                    ELSE
                        TRY_CAST(split_part(dur, '.', 1) || rpad(left(split_part(dur, '.', 2), 3), 3, '0') AS BIGINT)
                        + CASE
                            WHEN substr(split_part(dur, '.', 2), 4, 1) >= '5'
                                THEN CASE WHEN starts_with(dur, '-') THEN -1 ELSE 1 END
                            ELSE 0
                        END
                END
            ELSE CAST(trunc(dur_us) AS BIGINT) * 1000 + CAST(round((dur_us - trunc(dur_us)) * 1000) AS BIGINT)
        END AS duration_ns,
        CASE
            WHEN ts_has_point AND substr(ts, -4, 1) <> '.' THEN length(rtrim(split_part(ts, '.', 2), '0')) > 3
            ELSE FALSE
        END
        OR CASE
            WHEN dur_has_point AND substr(dur, -4, 1) <> '.' THEN length(rtrim(split_part(dur, '.', 2), '0')) > 3
            ELSE FALSE
        END AS is_fine,
        json_transform(args, '{
            "device": "BIGINT", "stream": "VARCHAR", "correlation": "BIGINT", "External id": "BIGINT",
            "Python id": "BIGINT", "Python parent id": "BIGINT", "wait_on_stream": "BIGINT",
            "wait_on_cuda_event_record_corr_id": "BIGINT", "wait_on_cuda_event_id": "BIGINT",
            "cuda_sync_kind": "VARCHAR", "graph node id": "BIGINT", "graph id": "BIGINT", "bytes": "BIGINT",
            "original_stream": "BIGINT", "sycl queue": "BIGINT"
        }') AS arg,
        -- Cuspy uses one name for all copies and records their direction in arguments.
        CASE WHEN name = 'Memcpy' THEN json_extract_string(args, '$."copy kind"') END AS copy_kind,
        CASE WHEN name = 'Memcpy' THEN json_extract_string(args, '$."src kind"') END AS source_kind,
        CASE WHEN name = 'Memcpy' THEN json_extract_string(args, '$."dst kind"') END AS target_kind,
        CASE WHEN name = 'Memset' THEN json_extract_string(args, '$."memory kind"') END AS memory_kind
    FROM sized
),
placed AS (
    SELECT
        i.trace_id,
        i.batch_id,
        -- Kineto's scope profiler on XPU writes a kernel's metrics as a second kernel.
        e.* REPLACE (
            CASE
                WHEN
                    e.cat = 'kernel' AND starts_with(e.name, 'metrics: ') AND e.arg.device IS NULL
                    AND e.arg.correlation IS NULL AND contains(e.args, '"kernel_id"')
                    THEN 'xpu_scope_profiler'
                ELSE e.cat
            END AS cat
        ),
        CASE
            WHEN e.relative_ns + i.base_ns BETWEEN -4602678819172646912 AND 4602678819172646912
                THEN e.relative_ns + i.base_ns
        END AS start_ns,
        -- NULL for the pointers that HIP calls record as stream.
        CASE WHEN NOT starts_with(e.arg.stream, '0x') THEN TRY_CAST(e.arg.stream AS BIGINT) END AS written_stream,
        -- Stream of graph work that is drawn on a lane, or whose stream an annotation overwrote.
        coalesce(e.arg.original_stream, CASE WHEN e.arg."graph node id" <> 0 THEN TRY_CAST(e.tid AS BIGINT) END)
            AS graph_stream
    FROM found AS e
    CROSS JOIN _ingest_context AS i
)
SELECT
    e.trace_id,  -- The trace.
    e.batch_id,  -- Ingest run that wrote it.
    -- Position in traceEvents, from 0. In a file with the traces of several ranks (finding merged_ranks), its position
    -- among the rank's own events.
    e.event_id,
    e.ph,  -- Phase: X complete, B and E begin and end, s t f flow, i instant, C counter, M metadata.
    -- Category in its canonical spelling; NULL if the event has none; xpu_scope_profiler for a kernel's metrics.
    coalesce(c.canonical, e.cat) AS cat,
    -- Name; for a copy or memset in Kineto's spelling: Memcpy HtoD (Pageable -> Device).
    CASE
        WHEN d.meaning IS NOT NULL
            THEN 'Memcpy ' || d.meaning || coalesce(' (' || f.meaning || ' -> ' || t.meaning || ')', '')
        WHEN m.meaning IS NOT NULL THEN 'Memset (' || m.meaning || ')'
        ELSE e.name
    END AS name,
    -- Process id as text; for GPU work the device; for an xpu_sync row with pid -1, the process that calls the runtime
    -- on its thread.
    e.pid,
    e.tid,  -- Thread id as text; for GPU work the stream.
    e.start_ns,  -- Start, ns since the Unix epoch if the trace has a base time, else as in the trace.
    e.duration_ns,  -- Duration, ns; NULL if there is none.
    e.start_ns + e.duration_ns AS end_ns,  -- End, ns.
    e.arg.device AS device,  -- Argument device.
    -- Stream: the argument original_stream; else, for graph work, a numeric tid; else the argument stream or, on XPU,
    -- sycl queue; else, for kernels without device and correlation (Triton's Proton), a numeric tid.
    coalesce(
        e.graph_stream, e.written_stream, e.arg."sycl queue",
        CASE
            WHEN e.cat = 'kernel' AND e.arg.device IS NULL AND e.arg.correlation IS NULL THEN TRY_CAST(e.tid AS BIGINT)
        END
    ) AS stream,
    e.arg.correlation AS correlation,  -- Argument correlation: joins a call and the GPU work it launched.
    -- Argument External id: joins an operator and an execution trace.
    coalesce(
        e.arg."External id",
        CASE
            WHEN contains(e.args, 'external id')
                THEN TRY_CAST(json_extract_string(e.args, '$."external id"') AS BIGINT)
        END
    ) AS external_id,
    e.arg."Python id" AS python_id,  -- Argument Python id of a Python frame.
    e.arg."Python parent id" AS python_parent_id,  -- Argument Python parent id of a Python frame.
    e.arg.wait_on_stream AS wait_on_stream,  -- Stream whose event is waited for.
    -- Correlation id of the record call waited for.
    e.arg.wait_on_cuda_event_record_corr_id AS wait_on_cuda_event_record_corr_id,
    e.arg.wait_on_cuda_event_id AS wait_on_cuda_event_id,  -- Id of the event waited for.
    e.arg.cuda_sync_kind AS cuda_sync_kind,  -- Kind of a wait, from the GPU's record of it.
    e.arg."graph node id" AS graph_node,  -- Node of the CUDA or HIP graph the work belongs to.
    e.arg."graph id" AS graph_id,  -- The graph.
    -- Argument stream of graph work if it is not its stream: the lane on which the work is drawn, or an annotation's
    -- value; else NULL.
    CASE WHEN e.written_stream <> e.graph_stream THEN e.written_stream END AS lane,
    e.arg.bytes AS bytes,  -- Bytes copied or set.
    e.id AS flow_id,  -- Key id: joins the arrows of a flow.
    e.bp,  -- Binding point of a flow's end.
    e.s AS scope,  -- Scope of an instant event.
    CAST(coalesce(e.args, e.attr) AS VARCHAR) AS args,  -- All arguments as JSON; NULL if the event has none.
    -- All other keys as JSON: keys of the trace format (tts, tdur, cname, sf, stack), attr next to args, and unknown
    -- keys; NULL if there are none.
    CASE
        WHEN coalesce(
                e.tts, e.tdur, e.cname, e.sf, CAST(e.stack AS VARCHAR), e.unknown,
                CASE WHEN e.args IS NOT NULL THEN CAST(e.attr AS VARCHAR) END
            ) IS NOT NULL
            THEN left(
                CAST(json_object(
                    'tts', e.tts, 'tdur', e.tdur, 'cname', e.cname, 'sf', e.sf, 'stack', e.stack
                ) AS VARCHAR), -1
            )
            || CASE
                WHEN e.args IS NOT NULL AND e.attr IS NOT NULL THEN ',"attr":' || CAST(e.attr AS VARCHAR) ELSE ''
            END
            || coalesce(',' || substr(e.unknown, 2), '}')
    END AS extra,
    -- out_of_range (ts or dur is too large and became NULL), not_a_number (ts or dur is unreadable and became NULL) or
    -- sub_nanosecond (rounded); else NULL.
    CASE
        WHEN
            (e.ts IS NOT NULL OR e.ts_us IS NOT NULL) AND e.start_ns IS NULL
            OR (e.dur IS NOT NULL OR e.dur_us IS NOT NULL) AND e.duration_ns IS NULL
            THEN CASE
                WHEN
                    e.start_ns IS NULL
                    AND (e.relative_ns IS NOT NULL OR abs(e.ts_us) > 4602678819172646 AND NOT isnan(e.ts_us))
                    THEN 'out_of_range'
                WHEN abs(e.dur_us) > 9007199254740 AND NOT isnan(e.dur_us) THEN 'out_of_range'
                ELSE 'not_a_number'
            END
        WHEN e.is_fine THEN 'sub_nanosecond'
    END AS time_flaw
FROM placed AS e
LEFT JOIN categories AS c ON c.raw = e.cat
LEFT JOIN memory_kinds AS d ON d.argument = 'copy kind' AND d.value = replace(lower(e.copy_kind), ' ', '_')
LEFT JOIN memory_kinds AS f ON f.argument = 'src kind' AND f.value = replace(lower(e.source_kind), ' ', '_')
LEFT JOIN memory_kinds AS t ON t.argument = 'dst kind' AND t.value = replace(lower(e.target_kind), ' ', '_')
LEFT JOIN memory_kinds AS m ON m.argument = 'memory kind' AND m.value = replace(lower(e.memory_kind), ' ', '_')
