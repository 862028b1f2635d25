-- One row: a category and name of events in a trace, with their class: RUNTIME for runtime and driver calls,
-- SYNCHRONIZATION for waits, the class in kernels for GPU work, OTHER for the rest.
-- How: group events with a duration by category and name. The matching rule in rules/kernel_classes.csv with the lowest
-- rule_order decides. Join the table to events on trace_id, cat and name; kernels contains no calls and no waits.
-- check: unique(trace_id, cat, name)
WITH kinds AS (
    SELECT
        e.trace_id, e.cat, e.name, count(*) AS n_events, sum(e.duration_ns) AS sum_ns,
        bool_or(e.stream IS NOT NULL) AS has_stream
    FROM events AS e
    WHERE e.duration_ns IS NOT NULL AND e.start_ns IS NOT NULL
    GROUP BY e.trace_id, e.cat, e.name
),
names AS (
    SELECT DISTINCT cat, name FROM kinds
),
-- _kernel_class has the names of all traces, but in this trace the event may be a CPU event. CPU events get no category
-- to join on. With a condition on one side of a LEFT JOIN instead, DuckDB would compare every pair of names.
sided AS (
    SELECT k.*, CASE WHEN k.has_stream OR s.side IN ('gpu', 'sync') THEN k.cat END AS gpu_cat
    FROM kinds AS k
    LEFT JOIN category_sides AS s ON s.cat = k.cat
),
fitting AS (
    SELECT n.cat, n.name, r.class, r.rule_id, r.fused
    FROM (
        SELECT
            cat, name, first_kernel_classes('default', coalesce(cat, ''), coalesce(name, '')) AS rule_order
        FROM names
    ) AS n
    JOIN kernel_classes AS r ON r.profile = 'default' AND r.rule_order = n.rule_order
)
SELECT
    k.trace_id,  -- The trace.
    k.cat,  -- Canonical category; NULL if the events have none.
    k.name,  -- Name of the events.
    f.class,  -- Class of the events, in class_kinds.
    f.rule_id,  -- Rule in kernel_classes that decided the class.
    f.fused,  -- The communication kernel also computes, e.g. a fused all-reduce and norm; NULL for other events.
    h.class AS hta_class,  -- Class in HTA 0.6.1; NULL for events that HTA counts as CPU events.
    h.rule_id AS hta_rule_id,  -- Rule in kernel_classes that decided hta_class.
    k.n_events,  -- Number of events.
    -- Summed duration of these events, ns; overlapping and nested events all count.
    TRY_CAST(k.sum_ns AS BIGINT) AS sum_ns
FROM sided AS k
JOIN fitting AS f ON f.cat IS NOT DISTINCT FROM k.cat AND f.name IS NOT DISTINCT FROM k.name
LEFT JOIN _kernel_class AS h
    ON h.profile = 'hta' AND h.cat = k.gpu_cat AND h.name IS NOT DISTINCT FROM k.name
