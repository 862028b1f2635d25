-- One row: the name of a kernel that multiplies float32 matrices without tensor cores, on a device that has faster
-- units for them.
-- How: names that tensor_core_kernels knows as products on the ordinary units, of no other type; the ratio of the
-- device's peak rates. The name does not say whether memory or the multiplying bounds it.
-- check: unique(name_no)
WITH products AS (
    SELECT n.trace_id, n.name_no, n.name, first_tensor_core_kernels(n.name) AS rule_order
    FROM _event_names AS n
    WHERE n.kind = 'kernel'
),
devices_of_traces AS (
    SELECT d.trace_id, max(s.tflops / f.tflops) AS factor
    FROM trace_devices AS d
    JOIN device_peaks AS s ON s.device_key = d.device_key AND s.dtype = 'fp32' AND s.peak_kind = 'datasheet'
    JOIN device_peaks AS f ON f.device_key = d.device_key AND f.dtype = 'tf32' AND f.peak_kind = 'datasheet'
    GROUP BY d.trace_id
)
SELECT
    p.name_no,  -- The name, in _event_names.
    round(d.factor, 4) AS factor  -- How long a product takes with TF32 at best, over what it takes without.
FROM products AS p
JOIN tensor_core_kernels AS r ON r.rule_order = p.rule_order AND r.rule_id IN ('simt', 'single-precision-gemm')
JOIN devices_of_traces AS d ON d.trace_id = p.trace_id
WHERE NOT regexp_matches(p.name, '(?i)dgemm|zgemm|hgemm|f64|double')
