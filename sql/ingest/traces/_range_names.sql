-- One row: a name of an NVTX or ROCTx range or mark, and what kind of event it is.
-- How: what emit_nvtx adds to names is cut off (almost every text has another number in it), and the few names that are
-- left are looked up in nvtx_categories.
WITH cut AS (
    SELECT
        text,
        regexp_replace(
            text, '(, seq = -?[0-9]+)?(, op_id = [0-9]+)?(, sizes = .*)?(, input_op_ids = .*)?$', ''
        ) AS name
    FROM _range_texts
),
names AS (
    SELECT DISTINCT name, name <> text AS is_emitted FROM cut
),
kinds AS (
    SELECT n.name, n.is_emitted, c.cat
    FROM names AS n
    JOIN nvtx_categories AS c
        ON regexp_matches(n.name, c.name_pattern) AND coalesce(c.is_emitted, n.is_emitted) = n.is_emitted
    QUALIFY row_number() OVER (PARTITION BY n.name, n.is_emitted ORDER BY c.rule_order) = 1
)
SELECT
    c.text,  -- The name as it was given.
    k.cat,  -- cpu_op or user_annotation.
    c.name,  -- The name without what emit_nvtx adds to it.
    -- Sequence number, which a forward operator and its backward share.
    TRY_CAST(regexp_extract(c.text, ', seq = ([0-9]+)', 1) AS BIGINT) AS sequence,
    -- Shapes of the inputs, as JSON.
    nullif(regexp_extract(c.text, ', sizes = (\[.*?\])(, input_op_ids = .*)?$', 1), '') AS sizes
FROM cut AS c
JOIN kinds AS k ON k.name = c.name AND k.is_emitted = (c.name <> c.text)
