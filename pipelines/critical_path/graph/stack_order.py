"""The order in which threads enter and leave the events of their stacks, and the event around each event.

With window functions, SQL sorts the same rows three times: by time, by depth and by position. This module sorts them
once. Depths and enclosing events then follow from running sums over the sorted rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt

from pipelines.base.groups import in_groups
from pipelines.models.python_tables import create_table, python_model

Ints = npt.NDArray[np.integer]
Flags = npt.NDArray[np.bool_]
EVENTS = 250_000
"""Maximum number of events in memory at a time. A window with more events is read alone."""
_THREADS = 1 << 20  # maximum number of threads of a window, in a thread_key
_ZERO = 1 << 62  # more than any duration, ns
_PART = 1 << 18  # rows per INSERT
_INSERT = """
    INSERT INTO _stack_order
    SELECT
        thread_key, ordinal, event_id, change, nullif(parent, -1), is_blocking, CASE WHEN is_operator THEN n_open END,
        nullif(last_node, -1), CASE WHEN last_node >= 0 THEN since_last END, last_node >= 0 AND both_lock,
        CASE WHEN last_node >= 0 THEN nullif(around, -1) END
    FROM rows
"""


@dataclass(frozen=True)
class Stacks:
    """The marks (start or end of an event) of threads, in the order in which each thread passes them.

    All arrays are (2n,) for n events. `thread` has the caller's thread numbers. `row` is the index of the event entered
    or left. `parent` is the index of the enclosing event: -1 at the top, and for ends that close their own event.
    `change` is 1 for entering, -1 for leaving.
    """

    thread: Ints
    row: Ints
    change: Ints
    parent: Ints


def stacks(thread: Ints, event: Ints, start: Ints, duration: Ints, pops: Flags) -> Stacks:
    """Return the marks of n events.

    The arguments are (n,): number of the thread, position in the file, start and duration in ns, and `pops`. If
    events cross instead of nesting, an end closes its own event or, with `pops`, the event on top of the stack.
    """
    n = len(thread)
    order = _in_order(thread, event, start, duration)
    is_end = order >= n
    row = order.astype(np.int32)
    del order
    row[is_end] -= n
    thread = thread[row]
    change = np.where(is_end, -1, 1).astype(np.int8)
    # Every thread ends with an empty stack, so one running sum serves all threads.
    depth = np.cumsum(change, dtype=np.int32) + is_end
    opens = ~is_end & np.append(False, ~is_end[:-1] & (thread[1:] == thread[:-1]))[: 2 * n]
    # Only starts look for a parent, unless ends may close another event.
    asking = np.flatnonzero(~is_end | pops[row])
    level = thread[asking].astype(np.int64) * (int(depth.max(initial=0)) + 1) + depth[asking]
    by_level = np.argsort(level, kind="stable")
    begins = np.append(True, np.diff(level[by_level]) != 0)[: len(level)]
    asking = asking[by_level]
    del level, by_level
    index = np.arange(len(asking))
    # Siblings share their parent: the event whose start comes right before the first of them.
    opened = np.maximum.accumulate(np.where(opens[asking], index, -1))
    inside = (opened >= np.maximum.accumulate(np.where(begins, index, 0))) & (depth[asking] > 1)
    parent = np.full(2 * n, -1, dtype=np.int32)
    parent[asking[inside]] = row[asking[opened[inside]] - 1]
    closing = np.flatnonzero(is_end[asking])
    closed = row[asking[closing - 1]]
    row[asking[closing]] = closed
    return Stacks(thread, row, change, parent)


def _in_order(thread: Ints, event: Ints, start: Ints, duration: Ints) -> Ints:
    """Return the marks sorted by thread and time. Mark i is the start of event i, and mark n + i is its end.

    At equal times the order is: ends (shorter first, then later in the file), starts (longer first, then earlier in the
    file), events of zero duration.
    """
    n = len(thread)
    at_ns, on_thread = np.concatenate((start, start + duration)), np.concatenate((thread, thread))
    order = np.argsort(at_ns, kind="stable")
    order = order[np.argsort(on_thread[order], kind="stable")]
    at_ns, on_thread = at_ns[order], on_thread[order]
    tied = np.append(False, (at_ns[1:] == at_ns[:-1]) & (on_thread[1:] == on_thread[:-1]))[: 2 * n]
    del at_ns, on_thread
    places = np.flatnonzero(tied | np.append(tied[1:], False)[: 2 * n])
    run = np.cumsum(~tied[places])
    marks = order[places]
    is_end = marks >= n
    event, duration = event[marks - n * is_end], duration[marks - n * is_end]
    turn = np.where(duration == 0, _ZERO, np.where(is_end, duration - _ZERO, -duration))
    by_place = np.where(duration == 0, 2 * event + is_end, np.where(is_end, -event, event))
    order[places] = marks[np.lexsort((by_place, turn, run))]
    return order


@python_model(
    "_stack_order",
    layer="critical_path",
    doc="One row: the start or end of a CPU event of a window, in the order in which its thread enters and leaves it.",
    columns=(
        ("thread_key", "BIGINT", "The window and the thread: window_no * 1048576 + thread_id, as in _stack_events."),
        ("ordinal", "INTEGER", "Position on the thread, from 1."),
        ("event_id", "BIGINT", "The event entered or left."),
        ("change", "TINYINT", "1 for entering, -1 for leaving."),
        ("parent_event_id", "BIGINT", "The event around it; NULL at the top, and for ends unless exit_pops_top."),
        ("is_blocking", "BOOLEAN", "Whether the event waits for the GPU."),
        (
            "n_open",
            "INTEGER",
            "Operators of the thread that are open afterwards; NULL if the row is not a node of the graph.",
        ),
        (
            "last_node_id",
            "BIGINT",
            "The previous node of the graph on the thread; NULL if there is none, or if n_open is NULL.",
        ),
        ("since_last_ns", "BIGINT", "Time since that node, ns."),
        ("both_lock", "BOOLEAN", "Whether its event and the event of that node both take the runtime lock."),
        ("around_event_id", "BIGINT", "The event around it; with exit_pops_top, around that node."),
    ),
    reads=("_stack_events",),
)
def stack_order(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_stack_order` from `_stack_events`."""
    create_table(con, "_stack_order")
    for thread_key, columns in _groups(con):
        event, start, duration, is_operator, is_lock, is_blocking, pops = columns
        threads, thread = np.unique(thread_key, return_inverse=True)
        # Numpy sorts numbers of 16 bits in one pass.
        marks = stacks(thread.astype(np.min_scalar_type(len(threads))), event, start, duration, pops)
        del thread_key, thread
        ordinal = np.arange(1, len(marks.row) + 1, dtype=np.int32)
        begins = np.flatnonzero(np.append(True, marks.thread[1:] != marks.thread[:-1]))
        ordinal -= np.repeat(begins, np.diff(np.append(begins, len(ordinal)))).astype(np.int32)
        last, n_open = _nodes(marks, is_operator)
        # Insert in parts, because all columns together take more memory than all their inputs.
        for first in range(0, len(marks.row), _PART):
            part = slice(first, first + _PART)
            row, change, parent, before = marks.row[part], marks.change[part], marks.parent[part], last[part]
            last_row, last_change = marks.row[before], marks.change[before]
            # DuckDB finds the arrays by the name of this variable. With an Arrow table, it would import pandas.
            rows = {
                "thread_key": threads[marks.thread[part]],
                "ordinal": ordinal[part],
                "event_id": event[row],
                "change": change,
                "parent": np.where(parent < 0, -1, event[parent]),
                "is_operator": is_operator[row],
                "is_blocking": is_blocking[row],
                "n_open": n_open[part],
                "last_node": np.where(before < 0, -1, 2 * event[last_row] + (last_change < 0)),
                "since_last": _at(start, duration, row, change) - _at(start, duration, last_row, last_change),
                "both_lock": is_lock[row] & is_lock[last_row],
                "around": np.where(pops[row], marks.parent[before], parent),
            }
            rows["around"] = np.where(rows["around"] < 0, -1, event[rows["around"]])
            con.execute(_INSERT)
            del rows


def _at(start: Ints, duration: Ints, row: Ints, change: Ints) -> Ints:
    """Return the times of marks, ns."""
    return start[row] + np.where(change < 0, duration[row], 0)


def _nodes(marks: Stacks, is_operator: Flags) -> tuple[Ints, Ints]:
    """Return the previous operator mark and the number of open operators for each operator mark.

    Both arrays cover all marks. The previous operator mark is that of the same thread, -1 if there is none. The number
    of open operators is counted after the mark. Marks of other events have -1 in both arrays.
    """
    nodes = np.flatnonzero(is_operator[marks.row]).astype(np.int32)
    last, n_open = np.full((2, len(marks.row)), -1, dtype=np.int32)
    n_open[nodes] = np.cumsum(marks.change[nodes], dtype=np.int32)
    follows = marks.thread[nodes[1:]] == marks.thread[nodes[:-1]]
    last[nodes[1:][follows]] = nodes[:-1][follows]
    return last, n_open


def _groups(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[Ints, list[np.ndarray]]]:
    """Yield the thread_key and the other columns of `_stack_events`, for groups of windows."""
    window = f"thread_key // {_THREADS}"
    counted = con.execute(f"SELECT {window}, count(*) FROM _stack_events GROUP BY 1 ORDER BY 1").fetchall()
    for numbers in in_groups(counted, EVENTS):
        values = con.execute(
            "SELECT thread_key, event_id, start_ns, duration_ns, is_operator, is_lock, is_blocking, exit_pops_top "
            f"FROM _stack_events WHERE thread_key >= {numbers[0] * _THREADS} AND thread_key < {(numbers[-1] + 1) * _THREADS}"
        ).fetchnumpy()
        thread_key, *columns = (np.asarray(column) for column in values.values())
        del values
        yield thread_key, columns
