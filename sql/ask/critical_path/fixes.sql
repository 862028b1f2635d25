-- Question: What would help: which changes of the program make a trace shorter, and by how much?
-- Reading: Each change is retimed by itself, on the whole trace (without the profiler, where `options` say so): two may
-- be ways out of the same stretch, so that their savings do not add up. `tracelake what-if TRACE` with `options` gives
-- the same number. `caveat` is what limits it.
-- Words: optimize, faster, speed up, save, fix, improve
SELECT
    coalesce(t.job, t.file) AS job, t.rank, t.file, f.fix, f.name, f.change, round(f.saves_ns / 1e6, 3) AS saves_ms,
    round(f.saves_percent, 1) AS saves_percent, f.options, f.same_stretch_as, f.caveat
FROM fixes AS f
JOIN traces AS t ON f.trace_id = t.trace_id
WHERE f.window_id = 'full'
ORDER BY f.saves_ns DESC, job, t.rank, t.file, t.trace_id, f.fix, f.name
