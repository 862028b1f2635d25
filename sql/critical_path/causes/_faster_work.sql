-- One row: the name of GPU work that the device can do faster, and the best factor: a float32 matrix product, or a copy
-- of pageable memory.
-- How: for products, the peak rate of float32 divided by the peak rate of TF32, or of bfloat16 or else float16 if the
-- device has no TF32. Names of products are the names that tensor_core_kernels identifies as float32 products, on the
-- ordinary units or by AMD's float32 matrix instructions. For copies, the time for their bytes at the peak rate of the
-- device's bus, divided by their duration. A name does not show whether memory or the multiplication bounds a product.
-- check: unique(name_no)
WITH products AS (
    SELECT n.trace_id, n.name_no, n.name, first_tensor_core_kernels(n.name) AS rule_order
    FROM _event_names AS n
    WHERE n.kind = 'kernel'
),
-- TF32 first, because it needs the smallest change of a program.
peaks AS (
    SELECT
        device_key,
        max(CASE WHEN dtype = 'fp32' THEN tflops END) AS float32,
        coalesce(
            max(CASE WHEN dtype = 'tf32' THEN tflops END), max(CASE WHEN dtype = 'bf16' THEN tflops END),
            max(CASE WHEN dtype = 'fp16' THEN tflops END)
        ) AS faster
    FROM device_peaks
    WHERE peak_kind = 'datasheet'
    GROUP BY device_key
),
devices_of_traces AS (
    SELECT d.trace_id, max(p.float32 / p.faster) AS factor
    FROM trace_devices AS d
    JOIN peaks AS p ON p.device_key = d.device_key AND p.float32 < p.faster
    GROUP BY d.trace_id
),
buses_of_traces AS (
    SELECT d.trace_id, min(v.pcie_unidirectional_gigabytes_per_s) AS gigabytes_per_s
    FROM trace_devices AS d
    JOIN devices AS v ON v.device_key = d.device_key
    GROUP BY d.trace_id
),
pageable AS (
    SELECT n.trace_id, n.name_no, sum(e.bytes) AS bytes, sum(e.duration_ns) AS duration_ns
    FROM _event_names AS n
    JOIN events AS e ON e.trace_id = n.trace_id AND e.cat = n.cat AND coalesce(e.name, '') = n.name
    WHERE n.is_pageable AND e.duration_ns > 0
    GROUP BY n.trace_id, n.name_no
    HAVING count(e.bytes) = count(*)
)
SELECT
    p.name_no,  -- The name, in _event_names.
    round(d.factor, 4) AS factor  -- Shortest possible duration, divided by the recorded duration.
FROM products AS p
JOIN tensor_core_kernels AS r
    ON r.rule_order = p.rule_order
        AND r.rule_id IN ('simt', 'single-precision-gemm', 'tensile-float32', 'tensile-float32-matrix-instruction')
JOIN devices_of_traces AS d ON d.trace_id = p.trace_id
WHERE NOT regexp_matches(p.name, '(?i)dgemm|zgemm|hgemm|f64|double')
UNION ALL
-- The factor is at least 0.0001, because 0 would also remove the waits for the copies.
SELECT c.name_no, greatest(round(c.bytes / b.gigabytes_per_s / c.duration_ns, 4), 0.0001) AS factor
FROM pageable AS c
JOIN buses_of_traces AS b ON b.trace_id = c.trace_id
WHERE c.bytes < b.gigabytes_per_s * c.duration_ns
