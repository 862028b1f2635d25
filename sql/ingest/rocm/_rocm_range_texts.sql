-- One row: a text of ROCTx ranges and marks in rocprofiler-sdk's output.
SELECT DISTINCT
    name AS text  -- The text.
FROM _rocm_calls_named
WHERE cat = 'range'
