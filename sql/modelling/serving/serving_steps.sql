-- model: _serving_marks
-- One row: a host event that is a step of a server, with the numbers in its name.
-- How: names that match rules/serving_phases.csv; per trace, only the lowest tier. An event that begins during another
-- such event on its thread is part of that step.
-- check: unique(trace_id, event_id)
WITH names AS (
    SELECT DISTINCT cat, name
    FROM events
    WHERE cat IN ('user_annotation', 'python_function') AND duration_ns IS NOT NULL AND start_ns IS NOT NULL
),
known AS (
    SELECT n.cat, n.name, r.rule_id, r.tier
    FROM (SELECT cat, name, first_serving_phases(cat, name) AS rule_order FROM names) AS n
    JOIN serving_phases AS r ON r.rule_order = n.rule_order
),
named AS (
    SELECT e.trace_id, e.event_id, e.cat, e.name, e.pid, e.tid, e.start_ns, e.end_ns, k.rule_id, k.tier
    FROM events AS e
    JOIN known AS k ON k.cat = e.cat AND k.name = e.name
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
),
lowest AS (
    SELECT trace_id, min(tier) AS tier FROM named GROUP BY trace_id
),
reached AS (
    SELECT
        n.*,
        max(n.end_ns) OVER (
            PARTITION BY n.trace_id, n.pid, n.tid ORDER BY n.start_ns, n.end_ns DESC, n.event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM named AS n
    JOIN lowest AS l ON l.trace_id = n.trace_id AND l.tier = n.tier
),
-- A number that is missing from the name is NULL or an empty text.
counted AS (
    SELECT
        m.trace_id, m.event_id, m.name, m.pid, m.tid, m.start_ns, m.end_ns, m.rule_id, m.tier, r.phase,
        TRY_CAST(nullif(regexp_extract(m.name, r.requests_pattern, 1), '') AS BIGINT) AS n_requests,
        TRY_CAST(nullif(regexp_extract(m.name, r.tokens_pattern, 1), '') AS BIGINT) AS n_tokens,
        TRY_CAST(nullif(regexp_extract(m.name, r.prefill_requests_pattern, 1), '') AS BIGINT) AS n_prefill_requests,
        TRY_CAST(nullif(regexp_extract(m.name, r.prefill_tokens_pattern, 1), '') AS BIGINT) AS n_prefill_tokens,
        TRY_CAST(nullif(regexp_extract(m.name, r.decode_requests_pattern, 1), '') AS BIGINT) AS n_decode_requests,
        TRY_CAST(nullif(regexp_extract(m.name, r.decode_tokens_pattern, 1), '') AS BIGINT) AS n_decode_tokens
    FROM reached AS m
    JOIN serving_phases AS r ON r.rule_id = m.rule_id
    WHERE m.reached_ns IS NULL OR m.start_ns >= m.reached_ns
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    name,  -- Name of the event.
    pid,  -- Process.
    tid,  -- Thread.
    start_ns,  -- Start on the host, ns.
    end_ns,  -- End on the host, ns.
    rule_id,  -- Rule in serving_phases.
    tier,  -- 1 where the name specifies the phase of the step.
    -- prefill, decode, mixed, idle or unknown; NULL if the name does not specify it.
    CASE
        WHEN phase IS NOT NULL THEN phase
        WHEN n_prefill_requests > 0 AND n_decode_requests > 0 THEN 'mixed'
        WHEN n_prefill_requests > 0 THEN 'prefill'
        WHEN n_decode_requests > 0 THEN 'decode'
        WHEN n_prefill_requests = 0 AND n_decode_requests = 0 THEN 'idle'
    END AS phase,
    -- Requests in the batch; NULL if the name does not specify it.
    CASE
        WHEN n_requests IS NOT NULL THEN n_requests
        WHEN n_prefill_requests IS NOT NULL OR n_decode_requests IS NOT NULL
            THEN TRY_CAST(
                CAST(coalesce(n_prefill_requests, 0) AS HUGEINT) + coalesce(n_decode_requests, 0) AS BIGINT
            )
    END AS n_requests,
    -- Tokens of all requests; NULL if the name does not specify it.
    CASE
        WHEN n_tokens IS NOT NULL THEN n_tokens
        WHEN n_prefill_requests > 0 AND n_prefill_tokens IS NULL THEN NULL
        WHEN n_decode_requests > 0 AND n_decode_tokens IS NULL THEN NULL
        WHEN n_prefill_tokens IS NOT NULL OR n_decode_tokens IS NOT NULL
            THEN TRY_CAST(CAST(coalesce(n_prefill_tokens, 0) AS HUGEINT) + coalesce(n_decode_tokens, 0) AS BIGINT)
    END AS n_tokens,
    n_prefill_requests,  -- Requests in prefill; NULL if the name does not specify it.
    n_prefill_tokens,  -- Tokens of these requests; NULL if the name does not specify it.
    n_decode_requests,  -- Requests in decode; NULL if the name does not specify it.
    n_decode_tokens  -- Tokens of these requests; NULL if the name does not specify it.
FROM counted;

-- model: _serving_shapes
-- One row: a step of a server in which operators of rules/serving_tokens.csv ran, with the number of tokens in their
-- input shapes.
-- How: the operators that start on the step's thread during the step. A step whose operators disagree has no row.
-- check: unique(trace_id, mark_id)
WITH marks AS (
    SELECT trace_id, pid, tid, start_ns, 0 AS turn, event_id, event_id AS mark_id, end_ns, NULL AS n_tokens
    FROM _serving_marks
    UNION ALL
    SELECT
        e.trace_id, e.pid, e.tid, e.start_ns, 1, e.event_id, NULL, NULL,
        TRY_CAST(nullif(regexp_extract(e.args ->> '$."Input Dims"', '^\[\[([0-9]+)', 1), '') AS BIGINT)
    FROM events AS e
    JOIN serving_tokens AS r ON r.op = e.name
    WHERE e.cat = 'cpu_op' AND e.start_ns IS NOT NULL
),
-- The latest step on the thread is the n-th, where n is the number of steps that have begun so far.
numbered AS (
    SELECT
        trace_id, pid, tid, start_ns, mark_id, end_ns, n_tokens,
        count(mark_id) OVER (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS n_begun
    FROM marks
)
SELECT
    m.trace_id,  -- The trace.
    m.mark_id,  -- The step in _serving_marks.
    min(o.n_tokens) AS n_tokens  -- Tokens of all requests.
FROM numbered AS o
JOIN numbered AS m
    ON m.trace_id = o.trace_id AND m.pid IS NOT DISTINCT FROM o.pid AND m.tid IS NOT DISTINCT FROM o.tid
        AND m.n_begun = o.n_begun
WHERE o.n_tokens IS NOT NULL AND m.mark_id IS NOT NULL AND o.start_ns < m.end_ns
GROUP BY m.trace_id, m.mark_id
HAVING min(o.n_tokens) = max(o.n_tokens);

-- model: _serving_work
-- One row: a GPU activity that a step of a server launched.
-- How: the step that is open on the launching thread, else the latest step in the process if it is still open.
-- check: unique(trace_id, event_id)
WITH calls AS (
    SELECT DISTINCT k.trace_id, l.event_id, l.pid, l.tid, l.start_ns
    FROM kernels AS k
    JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
    WHERE l.start_ns IS NOT NULL
),
served AS (
    SELECT DISTINCT trace_id FROM _serving_marks
),
marks AS (
    SELECT trace_id, event_id, pid, tid, start_ns, 0 AS turn, event_id AS mark_id, end_ns FROM _serving_marks
    UNION ALL
    SELECT l.trace_id, l.event_id, l.pid, l.tid, l.start_ns, 1, NULL, NULL
    FROM calls AS l
    JOIN served AS m ON m.trace_id = l.trace_id
),
-- The latest step on the thread, or in the process, is the n-th, where n is the number of steps that have begun so far.
numbered AS (
    SELECT
        trace_id, event_id, pid, tid, start_ns, mark_id, end_ns,
        count(mark_id) OVER own AS n_own, count(mark_id) OVER process AS n_other
    FROM marks
    WINDOW
        own AS (
            PARTITION BY trace_id, pid, tid ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ),
        process AS (
            PARTITION BY trace_id, pid ORDER BY start_ns, turn, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
),
owners AS (
    SELECT
        c.trace_id, c.event_id,
        CASE WHEN c.start_ns < o.end_ns THEN o.mark_id WHEN c.start_ns < p.end_ns THEN p.mark_id END AS mark_id
    FROM numbered AS c
    LEFT JOIN numbered AS o
        ON o.trace_id = c.trace_id AND o.pid IS NOT DISTINCT FROM c.pid AND o.tid IS NOT DISTINCT FROM c.tid
            AND o.n_own = c.n_own AND o.mark_id IS NOT NULL
    LEFT JOIN numbered AS p
        ON p.trace_id = c.trace_id AND p.pid IS NOT DISTINCT FROM c.pid AND p.n_other = c.n_other
            AND p.mark_id IS NOT NULL
    WHERE c.mark_id IS NULL
)
SELECT
    k.trace_id,  -- The trace.
    k.event_id,  -- The GPU activity in kernels.
    o.mark_id,  -- The step in _serving_marks.
    k.name,  -- Name of the GPU activity.
    k.cat,  -- kernel, gpu_memcpy or gpu_memset.
    k.start_ns,  -- Start, ns.
    k.end_ns,  -- End, ns.
    k.duration_ns  -- Duration, ns.
FROM kernels AS k
JOIN owners AS o ON o.trace_id = k.trace_id AND o.event_id = k.launch_event_id
WHERE o.mark_id IS NOT NULL;

-- model: _earlier_stretches
-- One row: an interval on a device that belongs to GPU work from before the trace. Such work ran, or the device was
-- idle and the path waits for such work.
WITH parts AS (
    SELECT trace_id, device, start_ns, end_ns FROM _earlier_work WHERE duration_ns > 0
    UNION ALL
    SELECT trace_id, device, start_ns, end_ns FROM idle_causes WHERE cause = 'earlier_work'
),
reached AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY trace_id, device ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM parts
)
SELECT
    trace_id,  -- The trace.
    device,  -- The device.
    greatest(start_ns, coalesce(reached_ns, start_ns)) AS start_ns,  -- Start, ns.
    end_ns  -- End, ns.
FROM reached
WHERE reached_ns IS NULL OR end_ns > reached_ns;

-- model: serving_steps
-- One row: a step of a server: one forward pass over a batch of requests.
-- How: the event name that the server sets identifies a step (rules/serving_phases.csv: vLLM, SGLang, TensorRT-LLM,
-- ATOM). Without such a name, a step is the frame of the function that runs a batch, or the profiler step. Attention
-- kernels then determine the phase (rules/serving_kernels.csv). GPU work belongs to the step that launched it, even if
-- it runs later.
-- check: unique(trace_id, event_id)
WITH reached AS (
    SELECT
        trace_id, mark_id, event_id, start_ns, duration_ns, greatest(end_ns, start_ns) AS end_ns,
        max(greatest(end_ns, start_ns)) OVER (
            PARTITION BY trace_id, mark_id ORDER BY start_ns, event_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM _serving_work
),
work AS (
    SELECT
        trace_id, mark_id, count(*) AS n_pieces, TRY_CAST(sum(duration_ns) AS BIGINT) AS work_ns,
        TRY_CAST(
            sum(greatest(end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)), 0)) AS BIGINT
        ) AS busy_ns,
        min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM reached
    GROUP BY trace_id, mark_id
),
names AS (
    SELECT DISTINCT name FROM _serving_work WHERE cat = 'kernel'
),
telling AS (
    SELECT n.name, r.phase
    FROM (SELECT name, first_serving_kernels(name) AS rule_order FROM names) AS n
    JOIN serving_kernels AS r ON r.rule_order = n.rule_order
),
by_kernels AS (
    SELECT
        w.trace_id, w.mark_id,
        CASE WHEN min(t.phase) = max(t.phase) THEN min(t.phase) ELSE 'mixed' END AS phase
    FROM _serving_work AS w
    JOIN telling AS t ON t.name = w.name
    GROUP BY w.trace_id, w.mark_id
),
measured AS (
    SELECT DISTINCT trace_id FROM kernels
),
described AS (
    SELECT
        m.*, k.phase AS kernel_phase, s.n_tokens AS shape_tokens,
        CASE WHEN g.trace_id IS NOT NULL THEN coalesce(w.n_pieces, 0) END AS n_pieces,
        CASE WHEN g.trace_id IS NOT NULL THEN coalesce(w.work_ns, 0) END AS work_ns,
        CASE WHEN g.trace_id IS NOT NULL THEN coalesce(w.busy_ns, 0) END AS busy_ns,
        w.start_ns AS work_start_ns, w.end_ns AS work_end_ns,
        CASE
            WHEN m.phase IS NOT NULL AND m.phase <> 'unknown' THEN m.phase
            ELSE coalesce(k.phase, 'unknown')
        END AS step_phase
    FROM _serving_marks AS m
    LEFT JOIN work AS w ON w.trace_id = m.trace_id AND w.mark_id = m.event_id
    LEFT JOIN measured AS g ON g.trace_id = m.trace_id
    LEFT JOIN by_kernels AS k ON k.trace_id = m.trace_id AND k.mark_id = m.event_id
    LEFT JOIN _serving_shapes AS s ON s.trace_id = m.trace_id AND s.mark_id = m.event_id
    WHERE m.tier < 3 OR k.phase IS NOT NULL
),
ordered AS (
    SELECT
        *,
        greatest(end_ns, coalesce(work_end_ns, end_ns)) - start_ns AS until_done_ns,
        lead(start_ns) OVER (PARTITION BY trace_id, pid, tid ORDER BY start_ns, event_id) - start_ns AS until_next_ns
    FROM described
),
timed AS (
    SELECT *, least(until_done_ns, coalesce(until_next_ns, until_done_ns)) AS step_ns FROM ordered
),
by_device AS (
    SELECT
        t.trace_id, t.event_id, s.device,
        sum(least(s.end_ns, t.start_ns + t.step_ns) - greatest(s.start_ns, t.start_ns)) AS earlier_ns
    FROM timed AS t
    JOIN _earlier_stretches AS s
        ON s.trace_id = t.trace_id AND s.start_ns < t.start_ns + t.step_ns AND s.end_ns > t.start_ns
    GROUP BY t.trace_id, t.event_id, s.device
),
earlier AS (
    SELECT trace_id, event_id, max(earlier_ns) AS earlier_ns FROM by_device GROUP BY trace_id, event_id
),
with_earlier AS (
    SELECT t.*, CASE WHEN t.n_pieces IS NOT NULL THEN coalesce(e.earlier_ns, 0) END AS earlier_ns
    FROM timed AS t
    LEFT JOIN earlier AS e ON e.trace_id = t.trace_id AND e.event_id = t.event_id
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents of the step's event.
    -- Index of the step in the trace, from 0.
    row_number() OVER (PARTITION BY trace_id ORDER BY start_ns, event_id) - 1 AS step_number,
    name,  -- Name of the event.
    rule_id,  -- Rule in serving_phases that matches the name.
    step_phase AS phase,  -- prefill, decode, mixed (both in one batch), idle (no requests) or unknown.
    -- Source of the phase: annotation (the name) or kernels; NULL where the phase is unknown.
    CASE
        WHEN step_phase = 'unknown' THEN NULL
        WHEN phase IS NOT NULL AND phase <> 'unknown' THEN 'annotation'
        ELSE 'kernels'
    END AS phase_source,
    -- Phase by its attention kernels: prefill, decode or mixed; NULL if both phases use these kernels, or if none ran.
    kernel_phase,
    n_requests,  -- Batch size: requests in the step; NULL if the name does not specify it.
    n_prefill_requests,  -- Requests in prefill; NULL if the name does not specify it.
    n_decode_requests,  -- Requests in decode; NULL if the name does not specify it.
    -- Input tokens of the model, of prompts and in decode; NULL if neither name nor shapes contain them.
    coalesce(n_tokens, shape_tokens) AS n_tokens,
    n_prefill_tokens,  -- Tokens of requests in prefill; NULL if the name does not specify it.
    n_decode_tokens,  -- Tokens of requests in decode; NULL if the name does not specify it.
    -- Source of n_tokens: annotation, or shapes of operators (which may be padded); NULL where n_tokens is NULL.
    CASE WHEN n_tokens IS NOT NULL THEN 'annotation' WHEN shape_tokens IS NOT NULL THEN 'shapes' END AS tokens_source,
    pid,  -- Process.
    tid,  -- Thread.
    start_ns,  -- Start on the host, ns.
    end_ns,  -- End on the host, ns.
    -- Duration of the step, ns: from its start to the end of the call and of its GPU work, or to the start of the next
    -- step on the thread if that is earlier. Time between steps belongs to no step, and overlapping time on a thread
    -- counts once.
    step_ns,
    -- Part of step_ns in which GPU work from before the trace ran, or the step waited for such work, ns; NULL where the
    -- trace has no GPU work at all.
    TRY_CAST(earlier_ns AS BIGINT) AS earlier_ns,
    -- Latency, ns: from the start of the step to the end of the call and of its GPU work; longer than step_ns if steps
    -- overlap.
    until_done_ns AS latency_ns,
    n_pieces AS n_gpu_pieces,  -- GPU activities that the step launched; NULL where the trace has no GPU work at all.
    work_ns AS gpu_ns,  -- Summed duration of these activities, ns; NULL where the trace has no GPU work at all.
    -- Time in which any of these activities ran, ns; NULL where the trace has no GPU work at all.
    busy_ns AS gpu_busy_ns,
    work_start_ns AS gpu_start_ns,  -- Start of the first activity, ns; NULL without any.
    work_end_ns AS gpu_end_ns  -- End of the last activity, ns; NULL without any.
FROM with_earlier;
