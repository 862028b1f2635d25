-- One row: a name of an NVTX or ROCTx range or mark, with its category.
-- How: cut off the suffix that emit_nvtx adds, because its numbers make almost every text unique. Look up the few
-- remaining names in nvtx_categories.
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
    c.text,  -- Text of the range, as recorded.
    k.cat,  -- cpu_op or user_annotation.
    c.name,  -- The text without the suffix of emit_nvtx.
    -- Sequence number, shared by a forward operator and its backward; NULL if the text has none.
    TRY_CAST(regexp_extract(c.text, ', seq = ([0-9]+)', 1) AS BIGINT) AS sequence,
    -- Shapes of the inputs, as JSON; NULL if the text has none.
    nullif(regexp_extract(c.text, ', sizes = (\[.*?\])(, input_op_ids = .*)?$', 1), '') AS sizes
FROM cut AS c
JOIN kinds AS k ON k.name = c.name AND k.is_emitted = (c.name <> c.text)
