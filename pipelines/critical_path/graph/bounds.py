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
        t.event_id, e.start_ns, e.duration_ns, e.name, e.cat, e.pid, e.tid, t.thread_id, t.device, e.stream, t.stream_key,
        t.is_blocking, t.around_event_id, t.owner_event_id, t.class
    FROM critical_path_events AS t
    JOIN events AS e ON e.trace_id = t.trace_id AND e.event_id = t.event_id
    WHERE {of}
    ORDER BY t.event_id
"""
"""The events of the graph of a window, one row per event in order of event_id; `of` is a condition on `trace_id` and
`window_id` of `t`."""

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
    import pyarrow as pa

    # Not fill_null and to_numpy, with which pyarrow imports pandas.
    column = table[name].combine_chunks()
    found = np.full(len(column), null, dtype=np.int64)
    there = np.from_dlpack(column.is_valid().cast(pa.uint8())).astype(bool)
    found[there] = np.from_dlpack(column.drop_null().cast(pa.int64()))
    return found


def text_codes(table: pa.Table, name: str) -> tuple[list[str], Ints]:
    """Returns the distinct texts of a column, and for each row its index among them; NULL is an empty text."""
    column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
    texts = [text or "" for text in column.dictionary.to_pylist()]
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([place[text] for text in texts], dtype=np.int64)
    return [*place], codes[np.from_dlpack(column.indices).astype(np.int64)]


def flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Returns a boolean column as an array; False where it is NULL."""
    return int_column(table, name, 0).astype(bool)
