-- One row: a number of an enum in an Nsight Systems export, with its meaning.
-- How: the export names its numbers in tables. An enum without a table in the export gets the usual numbers
-- (nsys_enums).
WITH named_enums AS (
    SELECT DISTINCT enum FROM _nsys_enum_names
)
SELECT
    r.enum,  -- The enum.
    coalesce(n.id, r.id) AS id,  -- The number.
    r.meaning  -- Meaning, in Kineto's words.
FROM nsys_enums AS r
LEFT JOIN _nsys_enum_names AS n ON n.enum = r.enum AND n.symbol = r.symbol
LEFT JOIN named_enums AS t ON t.enum = r.enum
WHERE n.id IS NOT NULL OR t.enum IS NULL
