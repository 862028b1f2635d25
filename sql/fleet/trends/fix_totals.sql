-- One row: a kind of fix of a capture, with its savings summed over the capture's traces.
-- How: fixes of the window `full`. Of several changes of a kind in a trace, only the largest counts, because savings do
-- not add up.
-- scope: capture
-- check: unique(capture_id, fix)
WITH placed AS (
    SELECT
        r.capture_id, r.trace_id, f.fix, f.change, f.saves_ns, f.saves_percent,
        row_number() OVER (PARTITION BY r.capture_id, r.trace_id, f.fix ORDER BY f.saves_ns DESC, f.name) AS place
    FROM capture_ranks AS r
    JOIN fixes AS f ON f.trace_id = r.trace_id
    WHERE f.window_id = 'full'
),
largest AS (
    SELECT
        capture_id, trace_id, fix, change, saves_ns, saves_percent,
        row_number() OVER (PARTITION BY capture_id, fix ORDER BY saves_ns DESC, trace_id) AS place
    FROM placed
    WHERE place = 1
)
SELECT
    capture_id,  -- The capture.
    fix,  -- The kind of fix, in fix_kinds.
    TRY_CAST(count(*) AS BIGINT) AS n_traces,  -- Number of traces that the fix makes faster.
    TRY_CAST(sum(saves_ns) AS BIGINT) AS saves_ns,  -- Sum of the savings in these traces, ns.
    max(CASE WHEN place = 1 THEN trace_id END) AS trace_id,  -- The trace with the largest saving.
    max(CASE WHEN place = 1 THEN change END) AS change,  -- The change to make in that trace.
    TRY_CAST(max(CASE WHEN place = 1 THEN saves_ns END) AS BIGINT) AS most_saves_ns,  -- Saving in that trace, ns.
    max(CASE WHEN place = 1 THEN saves_percent END) AS most_saves_percent  -- That saving in percent of the window.
FROM largest
GROUP BY capture_id, fix
