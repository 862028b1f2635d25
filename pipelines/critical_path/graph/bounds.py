"""Queries for the events and bounds of a graph that scenarios, edits and saved paths use, and columns as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.chains import Ints

if TYPE_CHECKING:
    import pyarrow as pa

CPU = "CPU"
"""The class of CPU operators and calls, in addition to the kernel classes."""

HOST = "HOST"
"""The class of annotations and Python functions that own host time outside operators."""

EVENTS = """
    SELECT
        t.event_id, e.start_ns, e.duration_ns, e.name, e.cat, e.pid, e.tid, t.thread_id, t.device, e.stream, t.stream_key,
        t.is_blocking, t.launch_event_id, t.around_event_id, t.owner_event_id, t.class
    FROM critical_path_events AS t
    JOIN events AS e ON e.trace_id = t.trace_id AND e.event_id = t.event_id
    WHERE {of}
    ORDER BY t.event_id
"""
"""The query for the events of a window's graph, one row per event in order of event_id. `of` is a condition on
`trace_id` and `window_id` of `t`.
"""

RULES = """
    SELECT y.edge_type, r.side, r.class, r.bound_by
    FROM _path_rules AS r
    JOIN edge_types AS y ON y.edge_code = r.edge_code
    JOIN critical_path_windows AS t ON t.profile = r.profile
    WHERE {of} AND (r.side = 'gpu') = (r.class <> '*')
    ORDER BY ALL
"""
"""The query for the bounds of edges in a window's profile, by the edge's type and the owner of its time. The owner is
side `gpu` with the class of the work, or side `cpu`, `outside` or `*` (no owner).
"""


def int_column(table: pa.Table, name: str, null: int = -1) -> Ints:
    """Return an integer column as an array, with `null` instead of NULL."""
    import pyarrow as pa

    # Not fill_null and to_numpy, because with them pyarrow imports pandas.
    column = table[name].combine_chunks()
    values = np.full(len(column), null, dtype=np.int64)
    is_valid = np.from_dlpack(column.is_valid().cast(pa.uint8())).astype(bool)
    values[is_valid] = np.from_dlpack(column.drop_null().cast(pa.int64()))
    return values


def text_codes(table: pa.Table, name: str) -> tuple[list[str], Ints]:
    """Return the distinct texts of a column, and for each row the index of its text. NULL counts as an empty text."""
    column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
    texts = [text or "" for text in column.dictionary.to_pylist()]
    code_by_text = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([code_by_text[text] for text in texts], dtype=np.int64)
    return [*code_by_text], codes[np.from_dlpack(column.indices).astype(np.int64)]


def flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Return a boolean column as an array, with False instead of NULL."""
    return int_column(table, name, 0).astype(bool)
