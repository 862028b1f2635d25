"""What bounds the edges of a graph, from the classes of its events: the rules of `_bound_by` applied to arrays.

A saved path holds both, so what-if and edited graphs get the labels of table `critical_path` without the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
        c.event_id, c.ts_ns, c.dur_ns, e.name, e.cat, e.pid, e.tid, c.thread_id, c.device, e.stream, c.stream_key, c.is_blocking,
        h.around_event_id, h.owner_event_id,
        CASE WHEN c.side = 'gpu' THEN coalesce(k.class, 'OTHER') WHEN c.is_operator THEN 'CPU' WHEN h.event_id IS NOT NULL THEN 'HOST' END
            AS class
    FROM critical_path_windows AS t
    JOIN _clip AS c ON c.window_no = t.window_no
    JOIN events AS e ON e.trace_id = t.trace_id AND e.event_id = c.event_id
    LEFT JOIN _kernel_class AS k ON k.profile = t.profile AND k.cat = e.cat AND k.name = e.name
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
    SELECT b.edge_type, b.side, b.class, b.bound_by, b.rule_rank
    FROM _bound_by AS b JOIN critical_path_windows AS t ON t.profile = b.profile
    WHERE {of}
"""
"""The rules for what bounds an edge in a window's profile."""

NO_TIME, ON_CPU, OUTSIDE, _CLASSES = range(4)
"""The owner of an edge: none, a CPU event, GPU work from outside the window that held up its end, and from _CLASSES on,
GPU work of the classes in their order.
"""


def int_column(table: pa.Table, name: str, null: int = -1) -> Ints:
    """Returns an integer column as an array; `null` stands for NULL."""
    return table[name].fill_null(null).to_numpy().astype(np.int64, copy=False)


def text_codes(table: pa.Table, name: str) -> tuple[list[str], Ints]:
    """Returns the distinct texts of a column, and for each row its index among them; NULL is an empty text."""
    column = table[name].fill_null("").combine_chunks().dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.to_numpy().astype(np.int64)


def owners(owner: Ints, attributed: Ints, event_class: Ints, outside: npt.NDArray[np.bool_]) -> Ints:
    """Returns the owner of each edge: NO_TIME, ON_CPU, OUTSIDE, or _CLASSES + class.

    Arguments: the index of each edge's event among the graph's events (-1: not one of them), the event's id (-1: none),
    the class of each event of the graph (-1: the CPU), and whether the edge waits for work from outside the window.
    """
    of_event = np.append(np.where(event_class < 0, ON_CPU, event_class + _CLASSES), ON_CPU)
    return np.where(outside, OUTSIDE, np.where(attributed < 0, NO_TIME, of_event[owner]))


def flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Returns a boolean column as an array; False where it is NULL, and where an older tracelake wrote no such column."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=bool)
    return table[name].fill_null(False).to_numpy().astype(bool)


def labels(
    rules: Sequence[dict[str, Any]], kinds: Sequence[str], classes: Sequence[str], kind: Ints, owner: Ints
) -> tuple[list[str], Ints]:
    """Returns the distinct labels of the edges, in order of their text, and for each edge its index among them.

    `kind` indexes `kinds`, `owner` is from `owners` for `classes`. Of the rules that match, the one with the lowest
    rank applies. Raises ValueError for an edge that no rule matches.
    """
    n = len(classes) + _CLASSES
    pairs, of_edge = np.unique(kind * n + owner, return_inverse=True)
    sides = [("*", "*"), ("cpu", "*"), ("outside", "*"), *(("gpu", name) for name in classes)]
    wanted: list[int] = pairs.tolist()
    found = [_label(rules, kinds[pair // n], *sides[pair % n]) for pair in wanted]
    distinct = sorted(set(found))
    place = np.array([distinct.index(label) for label in found], dtype=np.int64)
    return distinct, place[of_edge] if len(place) else np.arange(0)


def _label(rules: Sequence[dict[str, Any]], kind: str, side: str, of_class: str) -> str:
    fitting = [
        (rule["rule_rank"], rule["bound_by"] or "")
        for rule in rules
        if rule["edge_type"] == kind and rule["side"] in ("*", side) and rule["class"] in ("*", of_class)
    ]
    if not fitting:
        raise ValueError(f"no rule of what bounds it fits an edge {kind} of side {side} and class {of_class}")
    return min(fitting)[1]
