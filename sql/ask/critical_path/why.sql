-- Question: Why does it take so long: what is the time of a trace spent on, and what would it save (launch bound, idle,
-- data loading, waiting)?
-- Reading: The rows of a trace add up to its length. `saves_ms` is how much shorter the trace would be without the row,
-- by retiming; it is empty for small shares. `gpu_idle_ms` is the part in which no GPU work ran. `why-steps` answers
-- for each step.
-- Words: launch bound, host bound, idle, data loader, data loading, slow
SELECT
    coalesce(t.job, t.file) AS job, t.rank, t.file, c.cause, c.name, round(c.share_percent, 1) AS percent,
    round(c.duration_ns / 1e6, 3) AS path_ms, round(c.saves_ns / 1e6, 3) AS saves_ms,
    round(c.halved_saves_ns / 1e6, 3) AS halved_saves_ms, round(c.gpu_idle_ns / 1e6, 3) AS gpu_idle_ms, c.times AS n
FROM causes AS c
JOIN traces AS t ON c.trace_id = t.trace_id
WHERE c.window_id = 'full'
ORDER BY job, t.rank, t.file, t.trace_id, c.duration_ns DESC, c.cause, c.name
