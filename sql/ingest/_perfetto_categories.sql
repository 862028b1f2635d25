-- One row: a kind of event of a Perfetto trace that tells no category, and its category.
-- How: the first rule of perfetto_categories that fits the stage, the arguments and the name.
WITH kinds AS (
    SELECT DISTINCT
        coalesce(stage, '') AS stage, coalesce(name, '') AS name,
        coalesce(CAST(json_keys(args) AS VARCHAR), '') AS arguments
    FROM _perfetto_rows
    WHERE category IS NULL AND ph <> 'E'
),
ranked AS (
    SELECT
        k.*, r.cat,
        row_number() OVER (PARTITION BY k.stage, k.name, k.arguments ORDER BY r.rule_order) AS place
    FROM kinds AS k
    JOIN perfetto_categories AS r
        ON coalesce(r.stage, '') = k.stage
            AND (r.argument IS NULL OR contains(', ' || trim(k.arguments, '[]') || ', ', r.argument || ', '))
            AND regexp_matches(k.name, r.name_pattern)
)
SELECT
    stage,  -- Render stage; empty for slices.
    name,  -- Name; empty where there is none.
    arguments,  -- Names of the arguments.
    cat  -- The category.
FROM ranked
WHERE place = 1
