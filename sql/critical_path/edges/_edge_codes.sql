-- One row: the codes of HTA's edge types, one column per type. The table has a single row, so that models write names
-- instead of numbers. A model that needs another type reads its code from edge_types.
SELECT
    -- Code of the type.
    CAST(max(edge_code) FILTER (WHERE edge_type = 'OPERATOR_KERNEL') AS INTEGER) AS operator_kernel,
    CAST(max(edge_code) FILTER (WHERE edge_type = 'DEPENDENCY') AS INTEGER) AS dependency,  -- Code of the type.
    -- Code of the type.
    CAST(max(edge_code) FILTER (WHERE edge_type = 'KERNEL_LAUNCH_DELAY') AS INTEGER) AS kernel_launch_delay,
    -- Code of the type.
    CAST(max(edge_code) FILTER (WHERE edge_type = 'KERNEL_KERNEL_DELAY') AS INTEGER) AS kernel_kernel_delay,
    -- Code of the type.
    CAST(max(edge_code) FILTER (WHERE edge_type = 'SYNC_DEPENDENCY') AS INTEGER) AS sync_dependency
FROM edge_types
