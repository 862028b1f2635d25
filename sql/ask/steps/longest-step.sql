-- Question: What is the longest step made of: which annotations, modules and tasks, with how much GPU work?
-- Reading: The spans of the step's thread that begin in it, longest first; for a trace without steps, the spans of the
-- thread with most time in spans. `start_ns` counts from the step's start; `step_ns` is the length of its annotation.
-- `busy_ns` is the time with GPU work launched during the span; for a module, launched inside it. `roofline_percent` is
-- 100 at the data sheet's limit, over the modelled operators.
-- Words: slow steps
WITH own AS (
    SELECT
        s.trace_id, s.span_id, s.parent_id, s.kind, s.name, s.pid, s.tid, s.start_ns, s.end_ns, s.duration_ns
    FROM spans AS s
    JOIN traces AS t ON s.trace_id = t.trace_id
),
candidates AS (
    SELECT
        trace_id, pid, tid, start_ns, end_ns, 1 AS choice,
        row_number() OVER (PARTITION BY trace_id ORDER BY duration_ns DESC, span_id) AS place
    FROM own
    WHERE kind = 'step'
    UNION ALL
    SELECT
        trace_id, pid, tid, min(start_ns), max(end_ns), 2,
        row_number() OVER (PARTITION BY trace_id ORDER BY sum(duration_ns) DESC, pid, tid)
    FROM own
    WHERE parent_id IS NULL
    GROUP BY trace_id, pid, tid
),
stretches AS (
    SELECT *
    FROM candidates
    WHERE place = 1
    QUALIFY row_number() OVER (PARTITION BY trace_id ORDER BY choice) = 1
),
-- There is a row per kind of peak, and only the roofline depends on the peak.
reached AS (
    SELECT
        u.trace_id, u.span_id, u.phase, max(u.n_kernels) AS n, max(u.busy_ns) AS busy_ns, max(u.coverage) AS coverage,
        max(CASE WHEN u.peak_kind = 'datasheet' THEN u.roofline_utilization END) AS roofline_utilization
    FROM span_utilization AS u
    JOIN traces AS t ON u.trace_id = t.trace_id
    GROUP BY u.trace_id, u.span_id, u.phase
)
SELECT
    coalesce(t.job, t.file) AS job, t.rank, o.kind, o.name, o.start_ns - c.start_ns AS start_ns, o.duration_ns,
    u.n, u.busy_ns,
    100 * u.coverage AS modeled_percent, 100 * u.roofline_utilization AS roofline_percent, o.span_id AS span,
    o.parent_id AS parent, c.end_ns - c.start_ns AS step_ns
FROM stretches AS c
JOIN traces AS t ON c.trace_id = t.trace_id
JOIN own AS o
    ON o.trace_id = c.trace_id AND o.pid IS NOT DISTINCT FROM c.pid AND o.tid IS NOT DISTINCT FROM c.tid
        AND o.start_ns >= c.start_ns AND o.start_ns < c.end_ns
LEFT JOIN reached AS u
    ON u.trace_id = t.trace_id AND u.span_id = o.span_id
        AND u.phase = CASE WHEN o.kind = 'module' THEN 'fwd' ELSE 'window' END
ORDER BY job, t.rank, o.trace_id, o.duration_ns DESC, o.span_id
