-- model: _xplane_order
-- One row: an event of an XSpace and its number.
-- How: names of threads come first. Events follow by time, with the longer event first at equal times.
WITH threads AS (
    SELECT count(*) AS n_threads FROM _xplane_lines WHERE device IS NULL
)
SELECT
    -- Number of the event.
    t.n_threads
    + row_number() OVER (ORDER BY r.start_ns NULLS FIRST, r.duration_ns DESC NULLS LAST, r.n) - 1 AS event_id,
    r.n  -- Row in _xplane_rows.
FROM _xplane_rows AS r
CROSS JOIN threads AS t;

-- model: _xplane_categories
-- One row: a kind of event of an XSpace, with its category: the first matching rule of xplane_categories.
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
    line_name,  -- Name of the line; empty string if it has none.
    name,  -- Name of the event; empty string if it has none.
    is_step,  -- Whether the event has a step number.
    cat  -- The category.
FROM ranked
WHERE place = 1;

-- model: _xplane_events
-- One row: an event of an XSpace.
-- How: work on a device has the device as process and the stream as thread, with the launch's grid and block as Kineto
-- writes them. A step gets the name that PyTorch's profiler uses. HLO op, category, FLOPs and bytes are arguments.
WITH named AS (
    SELECT
        o.event_id, r.*, c.cat,
        -- On AMD GPUs, XLA uses names of code objects, which end in .kd. Kineto omits the suffix.
        CASE
            WHEN c.cat = 'user_annotation' AND r.step IS NOT NULL THEN 'ProfilerStep#' || r.step
            WHEN c.cat = 'kernel' THEN regexp_replace(r.name, '\.kd$', '')
            WHEN c.cat = 'gpu_memcpy' THEN regexp_replace(r.name, '(?i)^mem ?cpy ?([A-Z])2([A-Z])$', 'Memcpy \1to\2')
            WHEN c.cat = 'python_function' THEN regexp_replace(r.name, '^\$(.*):([0-9]+) (.*)$', '\1(\2): \3')
            ELSE r.name
        END AS shown,
        regexp_extract(r.details, 'grid:([0-9]+,[0-9]+,[0-9]+)', 1) AS grid,
        regexp_extract(r.details, 'block:([0-9]+,[0-9]+,[0-9]+)', 1) AS block,
        TRY_CAST(nullif(regexp_extract(r.details, 'size:([0-9]+)', 1), '') AS BIGINT) AS bytes
    FROM _xplane_rows AS r
    JOIN _xplane_order AS o ON o.n = r.n
    LEFT JOIN _xplane_categories AS c
        ON c.side = CASE WHEN r.device IS NULL THEN 'host' ELSE 'device' END
            AND c.line_name = coalesce(r.line_name, '')
            AND c.name = coalesce(r.name, '')
            AND c.is_step = (r.step IS NOT NULL)
),
threads AS (
    SELECT row_number() OVER (ORDER BY line, name) - 1 AS event_id, line, name
    FROM _xplane_lines
    WHERE device IS NULL
),
all_events AS (
    SELECT
        event_id, 'M' AS ph, CAST(NULL AS VARCHAR) AS cat, 'thread_name' AS name, 'host' AS pid, line AS tid,
        CAST(0 AS HUGEINT) AS start_ns, CAST(NULL AS BIGINT) AS duration_ns, CAST(NULL AS BIGINT) AS device,
        CAST(NULL AS BIGINT) AS stream, CAST(NULL AS BIGINT) AS correlation, CAST(NULL AS BIGINT) AS bytes,
        CAST(json_object('name', name) AS VARCHAR) AS args
    FROM threads
    UNION ALL
    SELECT
        n.event_id, CASE WHEN n.duration_ns IS NULL THEN 'i' ELSE 'X' END, n.cat, n.shown,
        coalesce(CAST(n.device AS VARCHAR), 'host'),
        CASE WHEN n.device IS NULL THEN n.line ELSE CAST(n.stream AS VARCHAR) END,
        CAST(n.start_ns AS HUGEINT) + s.start_ns, n.duration_ns, n.device, n.stream, n.correlation,
        CASE WHEN n.cat = 'gpu_memcpy' THEN n.bytes END,
        CAST(json_merge_patch(
            CAST(n.args AS JSON),
            CASE
                WHEN n.device IS NULL THEN '{}'
                ELSE json_object('device', n.device, 'stream', n.stream, 'correlation', n.correlation)
            END,
            CASE
                WHEN n.grid = '' OR n.block = '' OR n.grid IS NULL THEN '{}'
                ELSE
                    json_object(
                        'grid', CAST('[' || n.grid || ']' AS JSON), 'block', CAST('[' || n.block || ']' AS JSON)
                    )
            END
        ) AS VARCHAR)
    FROM named AS n
    CROSS JOIN _xplane_session AS s
)
SELECT
    event_id,  -- Number: names of threads first, then by time (_xplane_order).
    ph,  -- X complete, i instant, M name of a thread.
    cat,  -- Category (xplane_categories).
    name,  -- Name.
    pid,  -- host, or the device.
    tid,  -- Id of the thread's line, or the stream.
    start_ns,  -- Start, ns.
    duration_ns,  -- Duration, ns.
    device,  -- Number of the device.
    stream,  -- Stream; for a line without a stream, its id; for SparseCore n, plus (n + 1) * 2^32.
    correlation,  -- Correlation id.
    bytes,  -- Bytes copied.
    CASE WHEN ph = 'i' THEN 't' END AS scope,  -- Instants belong to their thread.
    args  -- All stats as JSON, and Kineto's keys.
FROM all_events;
