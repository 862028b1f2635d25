-- One row: a host event that is a span: a profiler step, an annotation, a module's call or a task of a software
-- pipeline.
-- How: user annotations with a name, by name; Python frames that the profiler named `nn.Module: Class_N`. In traces of
-- 2021, steps are operators.
-- check: unique(trace_id, event_id)
WITH named AS (
    SELECT
        trace_id, event_id, name AS full_name, pid, tid, start_ns, greatest(duration_ns, 0) AS duration_ns,
        CASE
            WHEN cat = 'python_function' THEN 'module'
            WHEN starts_with(name, 'ProfilerStep') THEN 'step'
            WHEN regexp_matches(name, '^SWP(_serial)?/.+/iter[0-9]+$') THEN 'task'
            ELSE 'annotation'
        END AS kind
    FROM events
    WHERE
        duration_ns IS NOT NULL AND start_ns IS NOT NULL
        AND (
            cat = 'user_annotation' AND name IS NOT NULL
            OR cat = 'cpu_op' AND starts_with(name, 'ProfilerStep#')
            OR cat = 'python_function' AND starts_with(name, 'nn.Module: ')
        )
)
SELECT
    trace_id,  -- The trace.
    event_id,  -- Position in traceEvents.
    kind,  -- step, annotation, module or task.
    -- Name; for a module, the part after `nn.Module: `.
    CASE WHEN kind = 'module' THEN substr(full_name, 12) ELSE full_name END AS name,
    CASE
        WHEN kind = 'module' THEN regexp_replace(substr(full_name, 12), '_[0-9]+$', '')
        WHEN kind = 'step' THEN 'ProfilerStep'
        WHEN kind = 'task' THEN regexp_replace(regexp_replace(full_name, '^SWP(_serial)?/', ''), '/iter[0-9]+$', '')
        ELSE full_name
    END AS family,  -- Name without its number: a module's class, a task, ProfilerStep.
    -- Number in the name: of the step, of the module in its class, of the task's iteration; NULL without one.
    CASE
        WHEN kind <> 'annotation' THEN TRY_CAST(regexp_extract(full_name, '[0-9]+$') AS BIGINT)
    END AS number,
    pid,  -- Process.
    tid,  -- Thread.
    start_ns,  -- Start, ns.
    start_ns + duration_ns AS end_ns,  -- End, ns.
    duration_ns  -- Duration on the host, ns.
FROM named
