-- One row: a profiler step and a device of a memory snapshot, with the memory in use when the step ended, and its
-- growth since the previous step.
-- How: the snapshot's own annotations define the steps. Without annotations, the profiler trace of the same rank and
-- time defines the steps.
-- scope: lake
WITH own AS (
    SELECT
        snapshot_id, TRY_CAST(replace(name, 'ProfilerStep#', '') AS BIGINT) AS step,
        min(CASE WHEN stage = 'START' THEN at_ns END) AS start_ns,
        max(CASE WHEN stage = 'END' THEN at_ns END) AS end_ns
    FROM snapshot_annotations
    WHERE starts_with(name, 'ProfilerStep#') AND at_ns > 0
    GROUP BY snapshot_id, TRY_CAST(replace(name, 'ProfilerStep#', '') AS BIGINT)
),
traced AS (
    SELECT m.snapshot_id, p.step, min(p.start_ns) AS start_ns, max(p.end_ns) AS end_ns
    FROM snapshot_trace_matches AS m
    JOIN profiler_steps AS p ON p.trace_id = m.trace_id
    LEFT JOIN own AS o ON o.snapshot_id = m.snapshot_id
    WHERE o.snapshot_id IS NULL
    GROUP BY m.snapshot_id, p.step
),
steps AS (
    SELECT snapshot_id, step, start_ns, end_ns, 'snapshot' AS source FROM own WHERE step IS NOT NULL
    UNION ALL
    SELECT snapshot_id, step, start_ns, end_ns, 'trace' FROM traced
),
on_devices AS (
    SELECT
        s.snapshot_id, p.device, s.step, s.start_ns, s.end_ns, s.source, p.first_allocated_bytes,
        -- The snapshot's own annotations ended before the snapshot was taken, so nothing changed after its last event.
        s.end_ns >= m.first_event_ns AND (s.end_ns <= m.last_event_ns OR s.source = 'snapshot') AS is_within
    FROM steps AS s
    JOIN memory_snapshots AS m ON m.snapshot_id = s.snapshot_id
    JOIN snapshot_peaks AS p ON p.snapshot_id = s.snapshot_id AND p.peak_seq IS NOT NULL
),
marks AS (
    SELECT snapshot_id, device, at_ns, 0 AS kind, seq, allocated_delta_bytes AS delta, NULL AS step
    FROM snapshot_timeline
    UNION ALL
    SELECT snapshot_id, device, end_ns, 1, 0, 0, step FROM on_devices WHERE is_within
),
levels AS (
    SELECT
        snapshot_id, device, step,
        sum(delta) OVER (
            PARTITION BY snapshot_id, device ORDER BY at_ns, kind, seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS added_bytes
    FROM marks
)
SELECT
    d.snapshot_id,  -- The snapshot.
    d.device,  -- Device number.
    d.step,  -- Number of the step.
    d.start_ns,  -- Start of the step, ns since the Unix epoch; NULL where it began before the annotations.
    d.end_ns,  -- End of the step, ns since the Unix epoch; NULL where it had not ended.
    d.source,  -- Source of the step: snapshot or trace.
    -- Memory in use at the end of the step, requested bytes; NULL where the history does not reach that time.
    TRY_CAST(d.first_allocated_bytes + l.added_bytes AS BIGINT) AS allocated_bytes,
    -- Growth of allocated_bytes since the end of the previous step in this table, bytes; NULL where either is unknown.
    TRY_CAST(
        d.first_allocated_bytes + l.added_bytes
        - lag(d.first_allocated_bytes + l.added_bytes) OVER (PARTITION BY d.snapshot_id, d.device ORDER BY d.step)
        AS BIGINT
    ) AS growth_bytes
FROM on_devices AS d
LEFT JOIN levels AS l ON l.snapshot_id = d.snapshot_id AND l.device = d.device AND l.step = d.step
