-- Question: How much faster are pipelined schedules than serial ones?
-- Reading: One row per run of a software pipeline and the serial run that it is compared with. `low` to `high` is the
-- spread over the rounds of a comparison (`python -m pipelines.schedule.run --compare`), `verdict` is its result.
-- `efficiency` 1 is the ideal period.
-- Words: bubble, pipeline, verdict
SELECT
    plan, engine, device_name, size, round(jitter_ns / 1e3, 1) AS jitter_us, round(period_ns / 1e6, 3) AS period_ms,
    round(serial_period_ns / 1e6, 3) AS serial_period_ms, round(speedup, 2) AS speedup,
    round(speedup_low, 2) AS low, round(speedup_high, 2) AS high, round(efficiency, 2) AS efficiency, verdict
FROM schedule_speedups
ORDER BY speedup DESC, plan, engine, run_id
