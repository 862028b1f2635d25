"""The parent of each host event, which is the last event on its thread that began before it and had not ended.

`call_stacks` closes the event on top of the stack, as HTA does. Here, an event that ends after its parent stays a
child, and so does every event that starts inside the parent. Crossing pairs are therefore kept and marked. SQL without
recursion cannot express this, so Python walks the stacks. numpy finds the ancestors of all requested events together.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import numpy.typing as npt

from pipelines.base.groups import in_groups
from pipelines.models.python_tables import create_table, python_model
from pipelines.models.sqltext import quoted, row

Ints = npt.NDArray[np.int64]
_BLOCK = 65_536  # number of events converted to Python numbers at a time
EVENTS = 1_000_000
"""Maximum number of events of several traces in memory at a time. A larger trace is read alone."""


def parents(thread: Ints, start: Ints, end: Ints) -> Ints:
    """Return the index of each event's parent, -1 at the top of a thread.

    `thread`, `start`, `end` (n,): events ordered by thread, start, end descending and position in the file. Times are
    in ns. A parent must not end before its child starts. It may end at the instant when the child starts only if it
    also began at that instant.
    """
    parent = np.empty(len(thread), dtype=np.int64)
    starts: list[int] = []
    ends: list[int] = []
    open_indices: list[int] = []
    current = None
    for first in range(0, len(thread), _BLOCK):
        block = slice(first, first + _BLOCK)
        block_parents = []
        rows = zip(thread[block].tolist(), start[block].tolist(), end[block].tolist(), strict=True)
        for index, (event_thread, event_start, event_end) in enumerate(rows, first):
            if event_thread != current:
                starts, ends, open_indices, current = [], [], [], event_thread
            while ends and (ends[-1] < event_start or ends[-1] == event_start != starts[-1]):
                ends.pop()
                starts.pop()
                open_indices.pop()
            block_parents.append(open_indices[-1] if open_indices else -1)
            starts.append(event_start)
            ends.append(event_end)
            open_indices.append(index)
        parent[block] = block_parents
    return parent


def ancestors(parent: Ints, inner: Ints, is_outer: npt.NDArray[np.bool_]) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield all pairs of an inner event and an enclosing outer event, one level of the stacks at a time.

    `parent` (n,): the result of `parents`. `inner` (m,): indices of the inner events. `is_outer` (n,): whether an event
    is an outer event. Each item is (inner, outer, height), each (k,). `height` is the position among the enclosing
    outer events, from 1 for the innermost.
    """
    height = np.zeros(len(inner), dtype=np.int64)
    above = parent[inner]
    while True:
        has_parent = above >= 0
        inner, above, height = inner[has_parent], above[has_parent], height[has_parent]
        if not len(inner):
            return
        is_match = is_outer[above]
        height += is_match
        yield inner[is_match], above[is_match], height[is_match]
        above = parent[above]


@python_model(
    "_host_stacks",
    layer="modelling",
    doc="One row: a host event with a duration and the event it started in, on its thread.",
    columns=(
        ("trace_id", "VARCHAR", "The trace."),
        ("event_id", "BIGINT", "The event."),
        ("parent_event_id", "BIGINT", "The event it started in; NULL at the top of the thread."),
        ("crosses", "BOOLEAN", "Whether it ends after its parent."),
    ),
    reads=("_host_events",),
    checks=("unique(trace_id, event_id)",),
)
def host_stacks(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_host_stacks` (trace_id, event_id, parent_event_id, crosses) from `_host_events`."""
    create_table(con, "_host_stacks")
    for traces in _groups(con):
        events = con.execute(
            f"SELECT t.number, event_id, thread_id, start_ns, end_ns FROM _host_events JOIN {_numbered(traces)} USING (trace_id) "
            "ORDER BY t.number, thread_id, start_ns, end_ns DESC, event_id"
        ).fetchnumpy()
        number, event, end = (np.asarray(events[name]) for name in ("number", "event_id", "end_ns"))
        is_first = np.diff(number, prepend=-1) != 0
        thread = np.cumsum((np.diff(events["thread_id"], prepend=0) != 0) | is_first)
        parent = parents(thread, np.asarray(events["start_ns"]), end)
        # DuckDB finds the arrays by the name of this variable. With an Arrow table, it would import pandas.
        rows = {
            "number": number,
            "event": event,
            "up": np.where(parent < 0, -1, event[parent]),
            "over": (parent >= 0) & (end > end[parent]),
        }
        con.execute(
            f"INSERT INTO _host_stacks SELECT {_ids(traces)}[number + 1], event, CASE WHEN up >= 0 THEN up END, over FROM rows"
        )
        del rows


@python_model(
    "_host_ancestors",
    layer="modelling",
    doc="One row: an inner event of _host_events and an outer one that it started in, directly or further up.",
    columns=(
        ("trace_id", "VARCHAR", "The trace."),
        ("event_id", "BIGINT", "The inner event."),
        ("ancestor_id", "BIGINT", "The outer event."),
        ("height", "BIGINT", "Position of the outer event among those around the inner one, from 1 for the innermost."),
    ),
    reads=("_host_events", "_host_stacks"),
    checks=("unique(trace_id, event_id, ancestor_id)",),
)
def host_ancestors(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_host_ancestors` (trace_id, event_id, ancestor_id, height) from `_host_stacks` and `_host_events`.

    Raise ValueError for a trace with a duplicate event, because it would enclose itself, and the search for ancestors
    would not end.
    """
    create_table(con, "_host_ancestors")
    for traces in _groups(con):
        events = con.execute(
            "SELECT t.number, e.event_id, coalesce(s.parent_event_id, -1) AS up, e.is_inner, e.is_outer "
            "FROM _host_events AS e JOIN _host_stacks AS s ON s.trace_id = e.trace_id AND s.event_id = e.event_id "
            f"JOIN {_numbered(traces)} ON t.trace_id = e.trace_id"
        ).fetchnumpy()
        # Number the events of all traces consecutively, trace after trace.
        first = np.cumsum([0, *(size for _, size in traces)])
        shift = first[np.asarray(events["number"])]
        event, up = events["event_id"] + shift, np.asarray(events["up"])
        _only_once(event, first, traces)
        parent, is_outer = np.full(first[-1], -1, dtype=np.int64), np.zeros(first[-1], dtype=np.bool_)
        parent[event], is_outer[event] = np.where(up >= 0, up + shift, -1), events["is_outer"]
        levels = list(ancestors(parent, np.sort(event[np.asarray(events["is_inner"])]), is_outer))
        if levels:
            inner, outer, height = (np.concatenate(column) for column in zip(*levels, strict=True))
            number = np.searchsorted(first, inner, side="right") - 1
            rows = {"number": number, "inner": inner - first[number], "outer": outer - first[number], "height": height}
            # Look up the ids in a list. A join would change the row order, on which sums of floats over these rows
            # depend.
            con.execute(
                f'INSERT INTO _host_ancestors SELECT {_ids(traces)}[number + 1], "inner", "outer", height FROM rows'
            )
            del rows


def _only_once(event: Ints, first: Ints, traces: list[tuple[str, int]]) -> None:
    counts = np.bincount(event, minlength=first[-1])
    if len(duplicates := np.flatnonzero(counts > 1)):
        number = int(np.searchsorted(first, duplicates[0], side="right")) - 1
        trace_id, event_id = traces[number][0], int(duplicates[0] - first[number])
        raise ValueError(f"trace {trace_id} has event {event_id} more than once: was the trace added twice?")


def _groups(con: duckdb.DuckDBPyConnection) -> Iterator[list[tuple[str, int]]]:
    """Yield the traces of `_host_events`, each with its largest event id plus 1, in groups of at most EVENTS events."""
    traces = con.execute("SELECT trace_id, max(event_id) + 1 FROM _host_events GROUP BY 1 ORDER BY 1").fetchall()
    return in_groups(((trace, trace[1]) for trace in traces), EVENTS)


def _ids(traces: list[tuple[str, int]]) -> str:
    """Return a SQL list of the traces' ids."""
    return f"[{', '.join(quoted(trace_id) for trace_id, _ in traces)}]"


def _numbered(traces: list[tuple[str, int]]) -> str:
    """Return SQL of a table t (number from 0, trace_id)."""
    rows = ", ".join(row([number, trace_id]) for number, (trace_id, _) in enumerate(traces))
    return f"(VALUES {rows}) AS t (number, trace_id)"
