-- Question: Which changes would save most GPU time in the fleet, and in how many traces do they help?
-- Reading: One row per kind of change, with its savings in all traces, each for one GPU. Of several changes of a kind
-- in a trace, only the largest counts, because savings do not add up. Neither do the savings of different kinds.
-- `percent` is relative to all time on critical paths. `top_…` is the trace with the largest saving; `tracelake ask
-- fixes` lists its changes. A job that is traced more often weighs more.
-- Words: optimize, save, fix, waste, GPU-hours
WITH jobs_of_captures AS (
    SELECT c.capture_id, c.job FROM captures AS c
),
ordered AS (
    SELECT
        k.job, f.fix, f.n_traces, f.saves_ns, f.trace_id, f.change, f.most_saves_percent,
        row_number() OVER (PARTITION BY f.fix ORDER BY f.most_saves_ns DESC, f.trace_id) AS place
    FROM fix_totals AS f
    JOIN jobs_of_captures AS k ON k.capture_id = f.capture_id
),
sums AS (
    SELECT
        fix, sum(n_traces) AS n_traces, sum(saves_ns) AS saves_ns, max(trace_id) FILTER (WHERE place = 1) AS trace_id,
        max(job) FILTER (WHERE place = 1) AS job, max(change) FILTER (WHERE place = 1) AS change,
        max(most_saves_percent) FILTER (WHERE place = 1) AS percent
    FROM ordered
    GROUP BY fix
),
whole AS (
    SELECT sum(w.duration_ns) AS duration_ns
    FROM cause_totals AS w
    JOIN jobs_of_captures AS k ON k.capture_id = w.capture_id
)
SELECT
    s.fix, CAST(s.n_traces AS BIGINT) AS n_traces, round(s.saves_ns / 3.6e12, 9) AS gpu_hours,
    round(100 * s.saves_ns / nullif(w.duration_ns, 0), 1) AS percent, coalesce(s.job, m.file) AS top_job,
    m.file AS top_file, s.change AS top_change, round(s.percent, 1) AS top_percent
FROM sums AS s
CROSS JOIN whole AS w
LEFT JOIN traces AS m ON m.trace_id = s.trace_id
ORDER BY s.saves_ns DESC, s.fix
