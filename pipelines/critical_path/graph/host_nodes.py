"""The nodes of host threads in thread order, and the owner of the time between two nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pipelines.critical_path.graph.stack_order import Flags, Ints, stacks


class Columns:
    """Base of dataclasses whose fields are arrays of equal length."""

    def __getitem__(self, chosen: Flags | Ints) -> Self:
        return type(self)(*(column[chosen] for column in vars(self).values()))

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Return all parts joined in order.

        Empties `parts`, because two copies of all columns would take too much memory.
        """
        columns = [dict(vars(part)) for part in parts]
        parts.clear()
        return cls(*(np.concatenate([part.pop(name) for part in columns]) for name in list(columns[0])))


@dataclass(frozen=True)
class HostEvents(Columns):
    """CPU events of threads, arrays (n,).

    `thread` numbers the threads of windows from 0, ascending. `start` counts from the window's start, ns. `is_operator`
    is False for annotations and Python functions. `waits` marks events named after a wait for another thread. `shown`
    is the event's rank as the displayed owner of the events inside it: 0 none, 1 a function of a module or of the
    user's, 2 an annotation other than a step.
    """

    thread: Ints
    event: Ints
    start: Ints
    duration: Ints
    is_operator: Flags
    waits: Flags
    shown: Ints


@dataclass(frozen=True)
class HostNodes(Columns):
    """Nodes of threads, arrays (m,), ordered by thread and by time on each thread.

    `node` is twice the event id, plus 1 for the event's end. `at` is its time since the window's start, ns. `n_open`
    counts the operators open after it. `before` marks nodes that follow another node of the same thread. The time
    between the two nodes belongs to event `owner` (-1 if unknown). `in_gap` marks time outside operators. `waits` marks
    gaps in a frame named after a wait. `of_frame` marks nodes of annotations and Python functions.
    """

    thread: Ints
    node: Ints
    at: Ints
    n_open: Ints
    before: Flags
    owner: Ints
    in_gap: Flags
    waits: Flags
    of_frame: Flags


@dataclass(frozen=True)
class _Marks:
    """Starts and ends of operators, arrays (2n,) for n operators, in the order in which each thread passes them.

    `n_open` counts the operators open after the mark. `around` is the enclosing operator, -1 if there is none.
    """

    thread: Ints
    node: Ints
    at: Ints
    n_open: Ints
    around: Ints


@dataclass(frozen=True)
class Frames(Columns):
    """Annotations and Python functions outside operators, arrays (k,) of event ids.

    `around` is the enclosing annotation or function, -1 if there is none. `shown` is the displayed owner: the enclosing
    annotation, else the module's or the user's own function, else the event itself.
    """

    thread: Ints
    event: Ints
    around: Ints
    shown: Ints


def host_nodes(events: HostEvents, until: Ints) -> tuple[HostNodes, Frames]:
    """Return the nodes of all operators, and of the annotations and Python functions that start or end outside them.

    `until` is the end of each thread's window since the window's start, ns. The integer types are as narrow as those of
    `events`.
    """
    span = 2 * int((events.start + events.duration).max(initial=0)) + 4
    frames, operators = events[~events.is_operator], events[events.is_operator]
    del events
    marks, keys = _operator_marks(operators, span)
    del operators
    gaps, owners = _frame_marks(frames, until, keys, marks.n_open, span)
    del frames, keys
    columns = dict(vars(marks))
    del marks
    return _merged(columns, gaps), owners


def nodes_without(nodes: HostNodes, out: Flags) -> HostNodes:
    """Return the nodes without the nodes `out`.

    If a thread's first nodes are removed, its next node becomes the first.
    """
    nodes = nodes[~out]
    before = _follows(nodes.thread)
    return replace(nodes, before=before, in_gap=nodes.in_gap & before, waits=nodes.waits & before)


def _operator_marks(operators: HostEvents, span: int) -> tuple[_Marks, Ints]:
    """Return the marks of operators, and the keys that sort marks by thread and time, ends first."""
    stack = stacks(
        operators.thread.astype(np.min_scalar_type(int(operators.thread.max(initial=0)))),
        operators.event, operators.start, operators.duration, np.zeros(len(operators.event), dtype=bool),
    )  # fmt: skip
    row, ends = stack.row, stack.change < 0
    n_open = np.cumsum(stack.change, dtype=np.int32)
    around = np.where(stack.parent < 0, operators.event.dtype.type(-1), operators.event[stack.parent])
    del stack
    at_ns = operators.start[row]
    ended = row[ends]
    at_ns[ends] += operators.duration[ended]
    lasted = np.zeros(len(row), dtype=bool)
    lasted[ends] = operators.duration[ended] > 0
    del ended
    marks = _Marks(operators.thread[row], 2 * operators.event[row] + ends, at_ns, n_open, around)
    keys = 2 * at_ns
    keys += marks.thread * np.int64(span)
    keys += ~lasted
    return marks, keys


@dataclass(frozen=True)
class _FrameMarks:
    """Starts and ends of annotations and Python functions outside operators, arrays (f,), in order.

    `place` is the number of operator marks before the mark. `inner` is the innermost frame open after the mark, -1 if
    there is none. `waits` marks inner frames named after a wait. `is_node` marks those outside operators and within the
    window.
    """

    thread: Ints
    node: Ints
    at: Ints
    place: Ints
    inner: Ints
    waits: Flags
    is_node: Flags


def _frame_marks(frames: HostEvents, until: Ints, keys: Ints, n_open: Ints, span: int) -> tuple[_FrameMarks, Frames]:
    n = len(frames.event)
    start, end = frames.start, frames.start + frames.duration
    at_ns = np.concatenate((start, end))
    thread, event = (np.tile(column, 2) for column in (frames.thread, frames.event))
    is_end = np.arange(2 * n) >= n
    key = thread * np.int64(span) + 2 * np.clip(at_ns, 0, span // 2 - 2)
    n_before = np.searchsorted(keys, key, side="right")
    outside = np.append(n_open, 0)[n_before - 1] == 0  # no operator is open before a thread's first mark
    # A frame that starts in one operator and ends in another spans the gap between them.
    free = np.append(np.cumsum(n_open == 0), 0)[n_before - 1] * (n_before > 0)
    spans = outside[:n] | outside[n:] | (free[n:] > free[:n])
    chosen = np.flatnonzero(np.tile(spans, 2))
    # At equal times: ends, the shorter first, then starts, the longer first. A frame that starts before the window
    # encloses it.
    turn = np.where(
        is_end, frames.duration[np.arange(2 * n) % max(n, 1)], -frames.duration[np.arange(2 * n) % max(n, 1)]
    )
    early = np.where(at_ns < 0, at_ns, 0)
    chosen = chosen[np.lexsort((event[chosen], turn[chosen], is_end[chosen] == 0, early[chosen], key[chosen]))]
    inner, around, owner = _innermost(
        (chosen % max(n, 1)).tolist(), is_end[chosen].tolist(), thread[chosen].tolist(), frames.shown.tolist()
    )
    named = np.append(frames.event, frames.event.dtype.type(-1))
    is_node = (outside & (at_ns >= 0) & (at_ns <= until[thread]))[chosen]
    marks = _FrameMarks(
        thread[chosen], 2 * event[chosen] + is_end[chosen], at_ns[chosen], n_before[chosen], named[inner],
        np.append(frames.waits, False)[inner], is_node,
    )  # fmt: skip
    entered = np.flatnonzero(owner >= 0)
    return marks, Frames(frames.thread[entered], named[entered], named[around[entered]], named[owner[entered]])


def _innermost(frame: list[int], is_end: list[bool], thread: list[int], rank: list[int]) -> tuple[Ints, Ints, Ints]:
    """Return the innermost frame open after each mark, and the enclosing frame and the displayed owner of each frame.

    The innermost frame is the one that started last (-1 if none is open), because frames may cross. The enclosing frame
    is -1 if there is none. A frame without a mark has -1 for both.
    """
    n, stack, last = len(rank), [], -1
    closed, around, owner = bytearray(n), [-1] * n, [-1] * n
    inner = np.empty(len(frame), dtype=np.int64)
    for i, current in enumerate(frame):
        if thread[i] != last:
            stack, last = [], thread[i]
        if is_end[i]:
            closed[current] = 1
            while stack and closed[stack[-1]]:
                stack.pop()
        else:
            owner[current] = current
            if stack:
                around[current] = stack[-1]
                outer = owner[stack[-1]]
                if rank[outer] > rank[current]:
                    owner[current] = outer
            if not closed[current]:  # the end of a frame of zero duration precedes its start
                stack.append(current)
        inner[i] = stack[-1] if stack else -1
    return inner, np.array(around, dtype=np.int64), np.array(owner, dtype=np.int64)


def _merged(marks: dict[str, Ints], gaps: _FrameMarks) -> HostNodes:
    """Return the nodes of operators and frames. `marks` contains the columns of `_Marks`, and is emptied."""
    n = len(marks["node"])
    chosen = np.flatnonzero(gaps.is_node)
    # Columns are merged one by one, because a second copy of all columns would be the memory peak of a long window.
    order = np.insert(np.arange(n, dtype=np.int32), gaps.place[chosen], (n + chosen).astype(np.int32))
    of_frame = order >= n

    def both(of_marks: Ints | Flags, of_gaps: Ints | Flags) -> Any:
        return np.append(of_marks, of_gaps)[order]

    nothing = np.zeros(len(gaps.node), dtype=np.int8)
    thread, node, at_ns = (both(marks.pop(name), getattr(gaps, name)) for name in ("thread", "node", "at"))
    n_open, around = both(marks.pop("n_open"), nothing), both(marks.pop("around"), nothing - 1)
    # The innermost frame after an operator mark is the innermost frame of the last frame mark before it. No frame is
    # open after a thread's last frame mark.
    last_frame_mark = np.searchsorted(gaps.place, np.arange(n, dtype=np.int32), side="right").astype(np.int32) - 1
    last = both(last_frame_mark, np.arange(len(gaps.node), dtype=np.int32))
    before = _follows(thread)
    in_gap = before & (_shifted(n_open) == 0)
    previous = _shifted(node)
    # Inside an operator, the owner is the operator that starts, the operator that ends, or the operator around two
    # consecutive operators.
    owner = np.where(previous % 2 == 0, previous // 2, np.where(node % 2 == 1, node // 2, around))
    del previous, around
    last = _shifted(last)
    owner[in_gap] = np.append(gaps.inner, -1)[last[in_gap]]
    waits = in_gap & np.append(gaps.waits, False)[last]
    return HostNodes(thread, node, at_ns, n_open, before, owner, in_gap, waits, of_frame)


def _follows(thread: Ints) -> Flags:
    """Return which nodes follow another node of their thread."""
    return np.append(False, thread[1:] == thread[:-1])[: len(thread)]


def _shifted(column: Ints) -> Ints:
    """Return the column shifted by one, so that each index has the previous value, and the first has -1."""
    shifted = np.empty_like(column)
    shifted[:1], shifted[1:] = -1, column[:-1]
    return shifted
