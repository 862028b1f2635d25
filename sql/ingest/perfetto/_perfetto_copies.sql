-- One row: a kind of copy or memset in a Perfetto trace, identified by its arguments, with Kineto's name for it.
WITH kinds AS (
    SELECT DISTINCT
        name AS kind, args ->> '$."copy kind"' AS direction, args ->> '$."src kind"' AS source,
        args ->> '$."dst kind"' AS target, args ->> '$."memory kind"' AS memory
    FROM _perfetto_rows
    WHERE name IN ('Memcpy', 'Memset') AND args IS NOT NULL
),
named AS (
    SELECT
        t.*,
        CASE t.kind
            WHEN 'Memcpy'
                THEN 'Memcpy ' || d.meaning || coalesce(' (' || a.meaning || ' -> ' || b.meaning || ')', '')
            ELSE 'Memset (' || m.meaning || ')'
        END AS name
    FROM kinds AS t
    LEFT JOIN memory_kinds AS d ON d.argument = 'copy kind' AND d.value = replace(lower(t.direction), ' ', '_')
    LEFT JOIN memory_kinds AS a ON a.argument = 'src kind' AND a.value = replace(lower(t.source), ' ', '_')
    LEFT JOIN memory_kinds AS b ON b.argument = 'dst kind' AND b.value = replace(lower(t.target), ' ', '_')
    LEFT JOIN memory_kinds AS m ON m.argument = 'memory kind' AND m.value = replace(lower(t.memory), ' ', '_')
)
SELECT
    -- Name and arguments copy kind, src kind, dst kind and memory kind, as a JSON list.
    CAST(json_array(kind, direction, source, target, memory) AS VARCHAR) AS kind_key,
    name  -- Kineto's name: Memcpy HtoD (Pageable -> Device).
FROM named
WHERE name IS NOT NULL
