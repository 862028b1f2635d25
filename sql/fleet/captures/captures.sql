-- One row: a capture, i.e. the ranks of one job that were profiled together. The row is the capture's commit marker: in
-- the other capture tables, only the rows of the capture's newest batch are valid.
-- How: the traces of one job in one folder. If a rank occurs more than once, start times separate the captures
-- (pipelines/fleet/captures/grouping.py).
-- scope: capture
-- key: capture_id
-- check: unique(capture_id)
SELECT
    CAST(capture_id AS VARCHAR) AS capture_id,  -- The capture: traces.capture_id of its traces.
    CAST(job AS VARCHAR) AS job,  -- Name of the job; NULL where unknown.
    CAST(n_ranks AS BIGINT) AS n_ranks,  -- Ranks present in the capture.
    CAST(world_size AS BIGINT) AS world_size,  -- Ranks of the job; NULL if no trace records it.
    -- Time of the first event of its ranks, UTC; NULL where traces count time from the boot of the host.
    CAST(started_at AS TIMESTAMP) AS started_at,
    -- Time of the first event of its ranks, ns, on their own clocks.
    TRY_CAST(capture_start_ns AS BIGINT) AS capture_start_ns,
    -- Time of the last event of its ranks, ns, on their own clocks.
    TRY_CAST(capture_end_ns AS BIGINT) AS capture_end_ns,
    CAST(n_traces AS BIGINT) AS n_traces,  -- Traces of the capture, including excluded traces.
    -- Hash over its traces and their roles in the capture; it changes when late ranks arrive.
    CAST(content AS VARCHAR) AS content,
    -- True if its traces were removed from the lake or now form other captures; readers do not see such a row.
    CAST(is_gone AS BOOLEAN) AS is_gone
FROM _staged_captures
