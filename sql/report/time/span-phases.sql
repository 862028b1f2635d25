-- Question: How much GPU work do the spans of each name have, by phase?
-- Reading: One row per kind, name and phase.
SELECT x.*
FROM span_names AS x
JOIN traces AS t ON x.trace_id = t.trace_id
ORDER BY x.kind, x.name, x.phase
