-- One row: a kind of event of an XSpace, and its category: the first rule of xplane_categories that fits.
WITH kinds AS (
    SELECT DISTINCT
        CASE WHEN device IS NULL THEN 'host' ELSE 'device' END AS side, coalesce(line_name, '') AS line_name,
        coalesce(name, '') AS name, step IS NOT NULL AS is_step
    FROM _xplane_rows
),
ranked AS (
    SELECT
        k.*, r.cat,
        row_number() OVER (PARTITION BY k.side, k.line_name, k.name, k.is_step ORDER BY r.rule_order) AS place
    FROM kinds AS k
    JOIN xplane_categories AS r
        ON r.side = k.side
            AND (r.is_step IS NULL OR k.is_step)
            AND regexp_matches(k.line_name, r.line_pattern)
            AND regexp_matches(k.name, r.name_pattern)
)
SELECT
    side,  -- device or host.
    line_name,  -- Name of the line; empty where there is none.
    name,  -- Name of the event; empty where there is none.
    is_step,  -- It has the number of a step.
    cat  -- The category.
FROM ranked
WHERE place = 1
