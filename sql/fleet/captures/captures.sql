-- One row: a capture: the ranks of one job that were profiled together. This table is the commit mark of captures: of
-- the other tables of captures the rows of a capture's newest batch count.
-- How: the traces of one job in one folder; where a rank occurs again, captures are distinguished by start time
-- (pipelines/fleet/captures/grouping.py).
-- scope: capture
-- key: capture_id
-- check: unique(capture_id)
SELECT
    CAST(capture_id AS VARCHAR) AS capture_id,  -- The capture: traces.capture_id of its traces.
    CAST(job AS VARCHAR) AS job,  -- Name of the job; NULL where unknown.
    CAST(n_ranks AS BIGINT) AS n_ranks,  -- Ranks that are there.
    CAST(world_size AS BIGINT) AS world_size,  -- Ranks of the job; NULL where no trace says.
    -- First event of its ranks, UTC; NULL where traces count time from the boot of the host.
    CAST(started_at AS TIMESTAMP) AS started_at,
    TRY_CAST(capture_start_ns AS BIGINT) AS capture_start_ns,  -- The same, ns, on the ranks' own clocks.
    TRY_CAST(capture_end_ns AS BIGINT) AS capture_end_ns,  -- Last event of its ranks, ns, on their own clocks.
    CAST(n_traces AS BIGINT) AS n_traces,  -- Its traces, including those that are left out.
    -- Hash over its traces and their roles in it; it changes when late ranks arrive.
    CAST(content AS VARCHAR) AS content,
    -- Its traces have left the lake or now make up other captures; readers do not see such a row.
    CAST(is_gone AS BOOLEAN) AS is_gone
FROM _staged_captures
