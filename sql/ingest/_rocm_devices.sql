-- One row: an agent (CPU or GPU) of rocprofiler-sdk's output, and the device that it is in traces.
SELECT
    id AS agent,  -- Agent, as GPU work names it.
    -- Number among the GPUs, as in Kineto's deviceProperties; where that is not told, of the agent.
    CASE
        WHEN kind = 'GPU' THEN coalesce(type_index, row_number() OVER (PARTITION BY kind ORDER BY id) - 1)
    END AS device
FROM _rocm_agents
WHERE id IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY id ORDER BY kind DESC NULLS LAST, type_index) = 1
