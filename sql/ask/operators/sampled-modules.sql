-- Question: How long do modules take in the sampled steps of recorded runs, and how close do they come to the peaks?
-- Reading: One row per recording, module and phase, of the newest run first. `ms` is the time per sampled step in which
-- the module was measured and ran: `n` calls in `n_steps` steps, and nothing is scaled up. It was measured in
-- `n_measured_steps` of `n_sampled_steps` sampled steps (without censuses), because a budget may allow only some
-- modules in a step. So compare `ms`, never sums over steps. A nested module also counts in its parent, so never add
-- modules up. The percentages are of the peaks in `peak_kind`, over the calls with known work, and NULL where work or
-- device is unknown. `suspect`: a call was faster than the peak allows, so the peak, type or inputs are wrong. Calls
-- whose work ran at another time (`not_measured`) are excluded.
-- Words: MFU, recording
WITH runs AS (
    SELECT run_id, max(start_ns) AS start_ns
    FROM recordings
    WHERE kind = 'spans'
    GROUP BY run_id
),
measured AS (
    SELECT recording_id, name, count(*) AS n_measured_steps
    FROM span_sample_modules
    WHERE NOT is_census
    GROUP BY recording_id, name
),
sampled AS (
    SELECT recording_id, count(*) AS n_sampled_steps
    FROM span_samples
    WHERE phase = 'step' AND NOT is_census
    GROUP BY recording_id
),
calls AS (
    -- A call has a row for each kind of peak.
    SELECT
        recording_id, run_id, rank, step, name, phase, duration_ns, peak_kind, mfu_wall, bandwidth_utilization,
        roofline_utilization, suspect
    FROM span_sample_utilization
    WHERE phase IN ('forward', 'backward') AND not_measured IS NULL
    QUALIFY row_number() OVER (PARTITION BY recording_id, step, span_id ORDER BY peak_kind) = 1
)
SELECT
    c.run_id, c.recording_id, c.rank, c.name, c.phase, count(*) AS n, count(DISTINCT c.step) AS n_steps,
    any_value(m.n_measured_steps) AS n_measured_steps, any_value(s.n_sampled_steps) AS n_sampled_steps,
    round(sum(c.duration_ns) / 1e6 / count(DISTINCT c.step), 3) AS ms,
    round(100 * sum(c.mfu_wall * c.duration_ns) / sum(c.duration_ns) FILTER (WHERE c.mfu_wall IS NOT NULL), 1)
        AS mfu_percent,
    round(
        100 * sum(c.bandwidth_utilization * c.duration_ns)
        / sum(c.duration_ns) FILTER (WHERE c.bandwidth_utilization IS NOT NULL), 1
    ) AS bandwidth_percent,
    round(
        100 * sum(c.roofline_utilization * c.duration_ns)
        / sum(c.duration_ns) FILTER (WHERE c.roofline_utilization IS NOT NULL), 1
    ) AS roofline_percent,
    min(c.peak_kind) AS peak_kind, bool_or(c.suspect) AS suspect
FROM calls AS c
JOIN runs AS r ON r.run_id = c.run_id
LEFT JOIN measured AS m ON m.recording_id = c.recording_id AND m.name = c.name
LEFT JOIN sampled AS s ON s.recording_id = c.recording_id
GROUP BY r.start_ns, c.run_id, c.recording_id, c.rank, c.name, c.phase
ORDER BY r.start_ns DESC, c.run_id, ms DESC, c.name, c.phase, c.rank, c.recording_id
