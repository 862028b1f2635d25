-- One row: a call in a Flight Recorder's ring and a trace of its rank, with the matching call in the trace. A call
-- whose rank has no trace also has one row.
-- How: if the trace records sequence numbers for a group, group and number match the calls (confidence 1.0). Otherwise,
-- calls of the group match by time: mutually nearest within 1 ms, with equal operation and number of elements (0.8). In
-- a group without such matches, calls match by order from the end, as long as operation, number of elements and type
-- are equal (0.5). Calls of different runs do not match. If the clocks of two calls both have a date and differ by
-- flight_recorder_run_ns or more, the calls are of different runs. All other calls are unmatched. A trace belongs to
-- dumps of the same job. If a job is unknown, it belongs to dumps in the same folder, or in a folder inside or around
-- the trace's folder. If a folder has several sets of dumps, only the newest counts.
-- scope: lake
WITH newest AS (
    SELECT set_id, job, folder, rank
    FROM flight_recorder_dumps
    QUALIFY dense_rank() OVER (PARTITION BY job, folder ORDER BY ingested_at DESC, set_id) = 1
),
pairs AS (
    SELECT d.set_id, d.rank, t.trace_id
    FROM newest AS d
    LEFT JOIN traces AS t
        ON t.rank = d.rank AND CASE
                WHEN d.job IS NOT NULL AND t.job IS NOT NULL THEN d.job = t.job
                ELSE starts_with(t.path, d.folder || '/')
                    OR starts_with(d.folder || '/', regexp_replace(t.path, '[^/]*$', ''))
            END
),
entries AS (
    SELECT
        p.set_id, p.rank, p.trace_id, e.record_id, e.group_name, e.created_ns, e.in_elements,
        CASE WHEN e.created_ns > threshold('dated_ns') THEN e.created_ns END AS dated_ns,
        CASE WHEN e.is_p2p THEN e.p2p_seq ELSE e.seq END AS seq,
        replace(lower(split_part(e.op, ' ', 1)), '_', '') AS op,
        lower(json_extract_string(e.input_dtypes, '$[0]')) AS dtype
    FROM pairs AS p
    JOIN flight_recorder_entries AS e ON e.set_id = p.set_id AND e.rank = p.rank
),
calls AS (
    SELECT
        p.set_id, p.rank, c.trace_id, c.event_id, c.group_name, c.start_ns, c.end_ns, c.op, c.seq, c.in_elements,
        c.dtype, CASE WHEN c.start_ns > threshold('dated_ns') THEN c.start_ns END AS dated_ns,
        max(c.seq) OVER (PARTITION BY p.set_id, p.trace_id, c.group_name) IS NOT NULL AS has_seq
    FROM pairs AS p
    JOIN collective_calls AS c ON c.trace_id = p.trace_id
    WHERE c.op NOT IN ('wait', 'init')
),
by_seq AS (
    SELECT e.set_id, e.rank, e.trace_id, e.record_id, c.event_id
    FROM entries AS e
    JOIN calls AS c
        ON c.set_id = e.set_id AND c.trace_id = e.trace_id AND c.group_name = e.group_name AND c.seq = e.seq
            AND c.op = e.op
            AND coalesce(abs(e.dated_ns - c.dated_ns) < threshold('flight_recorder_run_ns'), TRUE)
    QUALIFY row_number() OVER (PARTITION BY e.set_id, e.trace_id, e.rank, e.record_id ORDER BY c.event_id) = 1
),
near AS (
    SELECT
        e.set_id, e.rank, e.trace_id, e.group_name, e.record_id, c.event_id,
        row_number() OVER (
            PARTITION BY e.set_id, e.trace_id, e.record_id ORDER BY abs(e.created_ns - c.start_ns), c.event_id
        ) AS choice_of_entry,
        row_number() OVER (
            PARTITION BY e.set_id, e.trace_id, c.event_id ORDER BY abs(e.created_ns - c.start_ns), e.record_id
        ) AS choice_of_call
    FROM entries AS e
    JOIN calls AS c
        ON c.set_id = e.set_id AND c.trace_id = e.trace_id AND c.group_name = e.group_name AND c.op = e.op
            AND c.in_elements = e.in_elements
            AND e.created_ns >= c.start_ns - threshold('flight_recorder_ns')
            AND e.created_ns <= c.end_ns + threshold('flight_recorder_ns')
    WHERE NOT c.has_seq
),
by_time AS (
    SELECT
        set_id, rank, trace_id, group_name, record_id, event_id
    FROM near
    WHERE choice_of_entry = 1 AND choice_of_call = 1
),
timed_groups AS (
    SELECT DISTINCT set_id, trace_id, group_name FROM by_time
),
ordered_entries AS (
    SELECT
        set_id, rank, trace_id, group_name, record_id, op, in_elements, dtype, dated_ns,
        row_number() OVER (PARTITION BY set_id, trace_id, group_name ORDER BY record_id DESC) AS from_end
    FROM entries
    WHERE trace_id IS NOT NULL
),
ordered_calls AS (
    SELECT
        set_id, trace_id, group_name, event_id, op, in_elements, dtype, dated_ns,
        row_number() OVER (PARTITION BY set_id, trace_id, group_name ORDER BY start_ns DESC, event_id DESC) AS from_end
    FROM calls
    WHERE NOT has_seq
),
by_order AS (
    SELECT
        e.set_id, e.rank, e.trace_id, e.record_id, c.event_id,
        min(
            CASE
                WHEN e.op = c.op AND e.in_elements = c.in_elements AND e.dtype = c.dtype
                    AND coalesce(abs(e.dated_ns - c.dated_ns) < threshold('flight_recorder_run_ns'), TRUE) THEN 1
                ELSE 0
            END
        ) OVER (
            PARTITION BY e.set_id, e.trace_id, e.group_name ORDER BY e.from_end
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS is_equal
    FROM ordered_entries AS e
    JOIN ordered_calls AS c
        ON c.set_id = e.set_id AND c.trace_id = e.trace_id AND c.group_name = e.group_name AND c.from_end = e.from_end
    LEFT JOIN timed_groups AS g
        ON g.set_id = e.set_id AND g.trace_id = e.trace_id AND g.group_name = e.group_name
    WHERE g.set_id IS NULL
),
matched AS (
    SELECT set_id, rank, trace_id, record_id, event_id, 'seq' AS matched_by, 1.0 AS confidence FROM by_seq
    UNION ALL
    SELECT set_id, rank, trace_id, record_id, event_id, 'time', 0.8 FROM by_time
    UNION ALL
    SELECT set_id, rank, trace_id, record_id, event_id, 'order', 0.5 FROM by_order WHERE is_equal = 1
)
SELECT
    e.set_id,  -- The set of dumps, in flight_recorder_dumps.
    e.rank,  -- The rank.
    e.record_id,  -- The call, in flight_recorder_entries.
    e.group_name,  -- Process group of the call.
    e.trace_id,  -- A trace of the rank; NULL if there is none.
    m.event_id,  -- The same call in the trace, a record_param_comms event; NULL if unmatched.
    coalesce(m.matched_by, 'unmatched') AS matched_by,  -- seq, time, order or unmatched.
    -- 1.0, 0.8 or 0.5, depending on matched_by; NULL if unmatched.
    CAST(m.confidence AS DOUBLE) AS confidence
FROM entries AS e
LEFT JOIN matched AS m
    ON m.set_id = e.set_id AND m.rank = e.rank AND m.trace_id = e.trace_id AND m.record_id = e.record_id
