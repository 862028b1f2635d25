-- One row: a name of an NVTX range or mark in an export, and what kind of event it is.
WITH names AS (
    SELECT DISTINCT coalesce(r.text, s.value, 'text ' || r.text_id || ' (not in StringIds)', '(no name)') AS text
    FROM _nsys_ranges AS r
    LEFT JOIN _nsys_strings AS s ON s.id = r.text_id
)
SELECT
    n.text,  -- The name as it was given.
    c.cat,  -- cpu_op or user_annotation.
    -- The name without what emit_nvtx adds to it.
    CASE
        WHEN c.cat = 'cpu_op'
            THEN regexp_replace(
                n.text, '(, seq = -?[0-9]+)?(, op_id = [0-9]+)?(, sizes = .*)?(, input_op_ids = .*)?$', ''
            )
        ELSE n.text
    END AS name,
    CASE
        WHEN c.cat = 'cpu_op' THEN TRY_CAST(regexp_extract(n.text, ', seq = ([0-9]+)', 1) AS BIGINT)
    END AS sequence,  -- Sequence number, which a forward operator and its backward share.
    -- Shapes of the inputs, as JSON.
    CASE
        WHEN c.cat = 'cpu_op' THEN nullif(regexp_extract(n.text, ', sizes = (\[.*?\])(, input_op_ids = .*)?$', 1), '')
    END AS sizes
FROM names AS n
JOIN nvtx_categories AS c ON regexp_matches(n.text, c.name_pattern)
QUALIFY row_number() OVER (PARTITION BY n.text ORDER BY c.rule_order) = 1
