-- Question: What would help: which changes of the program make a trace shorter, and by how much?
-- Reading: Each change is retimed separately, on the whole trace (without the profiler, if `options` specify it). Two
-- changes may shorten the same segment, so their savings do not add up. `tracelake what-if TRACE` with `options`
-- returns the same number. `caveat` states its limits.
-- Words: optimize, faster, speed up, save, fix, improve
SELECT
    coalesce(t.job, t.file) AS job, t.rank, t.file, f.fix, f.name, f.change, round(f.saves_ns / 1e6, 3) AS saves_ms,
    round(f.saves_percent, 1) AS saves_percent, f.options, f.same_stretch_as, f.caveat
FROM fixes AS f
JOIN traces AS t ON f.trace_id = t.trace_id
WHERE f.window_id = 'full'
ORDER BY f.saves_ns DESC, job, t.rank, t.file, t.trace_id, f.fix, f.name
