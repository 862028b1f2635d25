-- One row: a number in an export of Nsight Systems and what it means.
-- How: by the export's own names of its numbers; for an enum that it has no table of, by the usual numbers.
WITH told AS (
    SELECT DISTINCT enum FROM _nsys_enum_names
)
SELECT
    r.enum,  -- The enum.
    coalesce(n.id, r.id) AS id,  -- The number.
    r.meaning  -- What it means, in Kineto's words.
FROM nsys_enums AS r
LEFT JOIN _nsys_enum_names AS n ON n.enum = r.enum AND n.symbol = r.symbol
LEFT JOIN told AS t ON t.enum = r.enum
WHERE n.id IS NOT NULL OR t.enum IS NULL
