-- Question: What would help a capture: which changes make all its ranks faster, and by how much?
-- Reading: Each change is retimed separately, across all ranks on the path: on all ranks, or (even_ranks) on a rank for
-- which the others wait. Two changes may shorten the same segment (`same_stretch_as`), so their savings do not add up.
-- `tracelake what-if FOLDER` with `options` returns the same number. `caveat` states its limits.
-- Words: optimize, faster, speed up, save, fix, late rank, straggler
SELECT
    f.capture_id, c.job, f.fix, f.name, f.change, round(f.saves_ns / 1e6, 3) AS saves_ms,
    round(f.saves_percent, 1) AS saves_percent, f.options, f.same_stretch_as, f.caveat
FROM capture_fixes AS f
JOIN captures AS c ON f.capture_id = c.capture_id
ORDER BY f.saves_ns DESC, c.job, f.capture_id, f.fix, f.name
