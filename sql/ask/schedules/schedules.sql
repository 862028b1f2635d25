-- Question: How much faster are pipelined schedules than serial ones?
-- Reading: One row per run of a software pipeline and the latest serial run of the same plan on the same device.
-- `efficiency` 1 is the ideal period.
-- Words: bubble, pipeline
SELECT
    plan, engine, device_name, size, round(jitter_ns / 1e3, 1) AS jitter_us, round(period_ns / 1e6, 3) AS period_ms,
    round(serial_period_ns / 1e6, 3) AS serial_period_ms, round(speedup, 2) AS speedup,
    round(efficiency, 2) AS efficiency
FROM schedule_speedups
ORDER BY speedup DESC, plan, engine, run_id
