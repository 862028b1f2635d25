-- One row: the numbers of the types of edges that HTA has, each in a column with its type's name, so that models write
-- names. A model of another type reads its number from edge_types.
SELECT
    CAST(max(edge_code) FILTER (WHERE edge_type = 'OPERATOR_KERNEL') AS INTEGER) AS operator_kernel,  -- Its number.
    CAST(max(edge_code) FILTER (WHERE edge_type = 'DEPENDENCY') AS INTEGER) AS dependency,  -- Its number.
    -- Its number.
    CAST(max(edge_code) FILTER (WHERE edge_type = 'KERNEL_LAUNCH_DELAY') AS INTEGER) AS kernel_launch_delay,
    -- Its number.
    CAST(max(edge_code) FILTER (WHERE edge_type = 'KERNEL_KERNEL_DELAY') AS INTEGER) AS kernel_kernel_delay,
    CAST(max(edge_code) FILTER (WHERE edge_type = 'SYNC_DEPENDENCY') AS INTEGER) AS sync_dependency  -- Its number.
FROM edge_types
