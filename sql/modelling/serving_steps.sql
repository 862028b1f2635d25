-- One row: a step of a server: one forward pass over a batch of requests.
-- How: by the name that the server gives it (rules/serving_phases.csv: vLLM, SGLang, TensorRT-LLM, ATOM); without one,
-- by the frame of the function that runs a batch, or the profiler step, whose attention kernels then say the phase
-- (rules/serving_kernels.csv). GPU work belongs to the step that launched it, also if it runs later.
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
told AS (
    SELECT t.*, CASE WHEN t.n_pieces IS NOT NULL THEN coalesce(e.earlier_ns, 0) END AS earlier_ns
    FROM timed AS t
    LEFT JOIN earlier AS e ON e.trace_id = t.trace_id AND e.event_id = t.event_id
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- The step: position in traceEvents of the event that is it.
    -- Place of the step in the trace, from 0.
    row_number() OVER (PARTITION BY trace_id ORDER BY start_ns, event_id) - 1 AS step_number,
    name,  -- Name of the event.
    rule_id,  -- Rule in serving_phases that knows the name.
    step_phase AS phase,  -- prefill, decode, mixed (both in one batch), idle (no requests) or unknown.
    -- Where the phase is from: annotation (the name) or kernels; NULL where it is unknown.
    CASE
        WHEN step_phase = 'unknown' THEN NULL
        WHEN phase IS NOT NULL AND phase <> 'unknown' THEN 'annotation'
        ELSE 'kernels'
    END AS phase_source,
    -- What its attention kernels say: prefill, decode or mixed; NULL where both phases use them, or none ran.
    kernel_phase,
    n_requests,  -- Batch size: requests in the step; NULL where the name does not say.
    n_prefill_requests,  -- Those in prefill; NULL where the name does not say.
    n_decode_requests,  -- Those in decode; NULL where the name does not say.
    -- Tokens that went into the model, of prompts and in decode; NULL where neither name nor shapes say.
    coalesce(n_tokens, shape_tokens) AS n_tokens,
    n_prefill_tokens,  -- Those of requests in prefill; NULL where the name does not say.
    n_decode_tokens,  -- Those of requests in decode; NULL where the name does not say.
    -- Where n_tokens is from: annotation, or shapes of operators (which may be padded); NULL where it is NULL.
    CASE WHEN n_tokens IS NOT NULL THEN 'annotation' WHEN shape_tokens IS NOT NULL THEN 'shapes' END AS tokens_source,
    pid,  -- Process.
    tid,  -- Thread.
    start_ns,  -- Start on the host, ns.
    end_ns,  -- End on the host, ns.
    -- What the step took, ns: from its start to the end of the call and of its GPU work, or to the next step's start on
    -- the thread if that is earlier. So time between steps is in none, and time of two steps at once counts once.
    step_ns,
    -- The part of it that belongs to GPU work from before the trace, ns: such work ran, or the step waits for it; NULL
    -- where the trace has no GPU work at all.
    TRY_CAST(earlier_ns AS BIGINT) AS earlier_ns,
    -- From its start to the end of the call and of its GPU work, ns: the latency, longer than step_ns if steps overlap.
    until_done_ns AS latency_ns,
    n_pieces AS n_gpu_pieces,  -- Pieces of GPU work that it launched; NULL where the trace has no GPU work at all.
    work_ns AS gpu_ns,  -- Their summed duration, ns; NULL where the trace has no GPU work at all.
    busy_ns AS gpu_busy_ns,  -- Time in which any of them ran, ns; NULL where the trace has no GPU work at all.
    work_start_ns AS gpu_start_ns,  -- Start of the first, ns; NULL where there is none.
    work_end_ns AS gpu_end_ns  -- End of the last, ns; NULL where there is none.
FROM told
