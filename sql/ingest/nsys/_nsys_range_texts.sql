-- One row: a text of NVTX ranges and marks in an export of Nsight Systems, registered or not.
SELECT DISTINCT
    -- The text; a registered text missing from StringIds is shown as its number.
    coalesce(r.text, s.value, 'text ' || r.text_id || ' (not in StringIds)', '(no name)') AS text
FROM _nsys_ranges AS r
LEFT JOIN _nsys_strings AS s ON s.id = r.text_id
