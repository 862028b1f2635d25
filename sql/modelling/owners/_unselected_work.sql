-- One row: a trace with GPU work, and the part of its GPU time that no scenario by operator, module or layer can
-- select, because graph replays ran it and the trace does not show its owner.
-- check: unique(trace_id)
SELECT
    trace_id,  -- The trace.
    -- Replays whose operator is unknown, percent of the trace's GPU time; NULL if all durations are 0.
    100e0 * coalesce(sum(duration_ns) FILTER (WHERE is_replay AND op IS NULL), 0)
    / nullif(sum(duration_ns), 0) AS op_percent,
    -- Replays whose module is unknown, percent of the trace's GPU time; NULL if all durations are 0.
    100e0 * coalesce(sum(duration_ns) FILTER (WHERE is_replay AND module IS NULL), 0)
    / nullif(sum(duration_ns), 0) AS module_percent,
    -- Replays whose layer is unknown, percent of the trace's GPU time; NULL if all durations are 0.
    100e0 * coalesce(sum(duration_ns) FILTER (WHERE is_replay AND layer IS NULL), 0)
    / nullif(sum(duration_ns), 0) AS layer_percent
FROM kernel_owners
GROUP BY trace_id
