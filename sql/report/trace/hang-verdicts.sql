-- Question: On which collectives do the ranks of a job differ?
-- Reading: One row per process group of each set of dumps that belongs to a trace, the root of the hang first.
SELECT x.*
FROM flight_recorder_verdicts AS x
WHERE x.set_id IN (SELECT m.set_id FROM flight_recorder_matches AS m JOIN traces AS t ON m.trace_id = t.trace_id)
ORDER BY x.is_root DESC NULLS LAST, x.kind IS NULL, x.created_ns, x.group_name, x.group_ranks
