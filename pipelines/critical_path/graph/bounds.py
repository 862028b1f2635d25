"""What scenarios, edits and saved paths ask of the events and edges of a graph, and its columns as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.dependency_graph import Ints

if TYPE_CHECKING:
    import pyarrow as pa

CPU = "CPU"
"""The class of CPU operators and calls, besides the kernel classes."""

HOST = "HOST"
"""The class of annotations and Python functions that own host time outside operators."""

EVENTS = """
    SELECT
        c.event_id, c.start_ns, c.duration_ns, e.name, e.cat, e.pid, e.tid, c.thread_id, c.device, e.stream, c.stream_key, c.is_blocking,
        h.around_event_id, h.owner_event_id,
        CASE WHEN c.side = 'gpu' THEN coalesce(k.class, 'OTHER') WHEN c.is_operator THEN 'CPU' WHEN h.event_id IS NOT NULL THEN 'HOST' END
            AS class
    FROM critical_path_windows AS t
    JOIN _clip AS c ON c.window_no = t.window_no
    JOIN events AS e ON e.trace_id = t.trace_id AND e.event_id = c.event_id
    LEFT JOIN _gpu_classes AS k ON k.window_no = c.window_no AND k.event_id = c.event_id
    LEFT JOIN (SELECT DISTINCT window_no, attributed_event_id FROM _edges) AS o
        ON o.window_no = c.window_no AND o.attributed_event_id = c.event_id
    LEFT JOIN _gap_owners AS h ON h.window_no = c.window_no AND h.event_id = c.event_id
    LEFT JOIN _left_out AS l ON l.window_no = c.window_no AND l.event_id = c.event_id
    WHERE
        {of} AND l.event_id IS NULL
        AND (c.is_operator OR c.side = 'gpu' OR o.attributed_event_id IS NOT NULL OR h.event_id IS NOT NULL)
    ORDER BY c.event_id
"""
"""The events of the graph of a window, one row per event in order of event_id; `of` is a condition on the window `t`.

`around_event_id` and `owner_event_id` are those of `_gap_owners`. `class` is NULL for an event that has no nodes and only gives an edge its time (HTA attributes some to annotations).
"""

RULES = """
    SELECT y.edge_type, r.side, r.class, r.bound_by
    FROM _path_rules AS r
    JOIN edge_types AS y ON y.edge_code = r.edge_code
    JOIN critical_path_windows AS t ON t.profile = r.profile
    WHERE {of} AND (r.side = 'gpu') = (r.class <> '*')
    ORDER BY ALL
"""
"""What bounds an edge in a window's profile, by its type and whose time it is: side `gpu` with the class of the work, or `cpu`,
`outside`, `*` (nobody's)."""


def int_column(table: pa.Table, name: str, null: int = -1) -> Ints:
    """Returns an integer column as an array; `null` stands for NULL."""
    return table[name].fill_null(null).to_numpy().astype(np.int64, copy=False)


def text_codes(table: pa.Table, name: str) -> tuple[list[str], Ints]:
    """Returns the distinct texts of a column, and for each row its index among them; NULL is an empty text."""
    column = table[name].fill_null("").combine_chunks().dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.to_numpy().astype(np.int64)


def flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Returns a boolean column as an array; False where it is NULL."""
    return table[name].fill_null(False).to_numpy().astype(bool)
