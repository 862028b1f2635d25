-- Question: Which changes would save most GPU time in the fleet, and in how many traces do they help?
-- Reading: One row per kind of change, with its savings in all traces, each for one GPU. Of several changes of a kind
-- in a trace, only the largest counts, because savings do not add up. Neither do the savings of different kinds.
-- `percent` is of all traced time. `worst_…` is the trace with the largest saving; `tracelake ask fixes` lists its
-- changes. A job that is traced more often weighs more.
-- Words: optimize, save, fix, waste, GPU-hours
WITH whole AS (
    SELECT t.trace_id, coalesce(t.job, t.file) AS job, t.file, w.length_ns
    FROM traces AS t
    JOIN window_gpu_time AS w ON t.trace_id = w.trace_id
    WHERE w.window_id = 'full'
),
largest AS (
    SELECT trace_id, fix, name, change, saves_ns, saves_percent
    FROM fixes
    WHERE window_id = 'full'
    QUALIFY row_number() OVER (PARTITION BY trace_id, fix ORDER BY saves_ns DESC, name) = 1
),
ordered AS (
    SELECT
        w.job, w.file, l.fix, l.change, l.saves_ns, l.saves_percent,
        row_number() OVER (PARTITION BY l.fix ORDER BY l.saves_ns DESC, w.job, w.file, w.trace_id) AS place
    FROM largest AS l
    JOIN whole AS w ON l.trace_id = w.trace_id
)
SELECT
    o.fix, count(*) AS n_traces, round(sum(o.saves_ns) / 3.6e12, 6) AS gpu_hours,
    round(100 * sum(o.saves_ns) / nullif((SELECT sum(w.length_ns) FROM whole AS w), 0), 1) AS percent,
    max(o.job) FILTER (WHERE o.place = 1) AS worst_job, max(o.file) FILTER (WHERE o.place = 1) AS worst_file,
    max(o.change) FILTER (WHERE o.place = 1) AS worst_change,
    round(max(o.saves_percent) FILTER (WHERE o.place = 1), 1) AS worst_percent
FROM ordered AS o
GROUP BY o.fix
ORDER BY sum(o.saves_ns) DESC, o.fix
