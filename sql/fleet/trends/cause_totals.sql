-- One row: a cause on the critical paths of a capture's traces, each for its whole length.
-- How: causes of the window `full`, summed over traces.
-- scope: capture
-- check: unique(capture_id, cause)
WITH named AS (
    SELECT r.capture_id, c.cause, c.name, sum(c.duration_ns) AS duration_ns
    FROM capture_ranks AS r
    JOIN causes AS c ON c.trace_id = r.trace_id
    WHERE c.window_id = 'full'
    GROUP BY r.capture_id, c.cause, c.name
),
placed AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY capture_id, cause
            ORDER BY CASE WHEN name = '(other names)' THEN 1 ELSE 0 END, duration_ns DESC, name
        ) AS place
    FROM named
)
SELECT
    capture_id,  -- The capture.
    cause,  -- The cause, in cause_kinds.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS duration_ns,  -- Time of the cause on the paths, ns.
    -- The operator, kernel, call, annotation, Python function, thread or stream with the most of this time.
    max(CASE WHEN place = 1 THEN name END) AS name,
    TRY_CAST(max(CASE WHEN place = 1 THEN duration_ns END) AS BIGINT) AS name_ns  -- Time of that name, ns.
FROM placed
GROUP BY capture_id, cause
