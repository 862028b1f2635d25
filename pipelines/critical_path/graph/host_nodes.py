"""The nodes of host threads in the order in which each thread passes them, and whose time lies between two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pipelines.critical_path.graph.stack_order import Flags, Ints, stacks


class Columns:
    """A dataclass of arrays of one length."""

    def __getitem__(self, chosen: Flags | Ints) -> Self:
        return type(self)(*(column[chosen] for column in vars(self).values()))

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Returns all parts as one, in order. `parts` is emptied: two copies of all columns would take too much memory."""
        columns = [dict(vars(part)) for part in parts]
        parts.clear()
        return cls(*(np.concatenate([one.pop(name) for one in columns]) for name in list(columns[0])))


@dataclass(frozen=True)
class HostEvents(Columns):
    """CPU events of threads, arrays (n,): `thread` numbers threads of windows from 0, ascending; `start` counts from the
    window's start, ns. `is_operator`: else an annotation or a Python function. `waits`: one that is named after a wait for
    another thread; `shown`: one that is shown as the owner of what is inside it (0 no, 1 a function of a module or of the
    user's, 2 an annotation other than a step).
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
    """Nodes of threads, arrays (m,), in the order of threads, and of time on each.

    `node` is twice the event, plus 1 for its end; `at` its time since the window's start, ns. `n_open`: operators open
    after it. `before`: whether the node before it is on the same thread; the time in between belongs to event `owner`
    (-1: nobody known), which is outside operators where `in_gap`, and in a frame named after a wait where `waits`.
    `of_frame`: of an annotation or a Python function.
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
    """Starts and ends of operators, arrays (2n,) for n of them, in the order in which each thread passes them.

    `n_open`: operators open after it; `around`: the operator around it, -1 for none.
    """

    thread: Ints
    node: Ints
    at: Ints
    n_open: Ints
    around: Ints


@dataclass(frozen=True)
class Frames(Columns):
    """Annotations and Python functions outside operators, arrays (k,): events, that of the one around each (-1: none), and
    that of the one shown as its owner: the annotation around it, else the module's or user's own function, else itself.
    """

    thread: Ints
    event: Ints
    around: Ints
    shown: Ints


def host_nodes(events: HostEvents, until: Ints) -> tuple[HostNodes, Frames]:
    """Returns the nodes of all operators, and of those annotations and Python functions that begin or end outside them.

    `until`: the end of each thread's window since its start, ns. Numbers are as narrow as those of `events`.
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


def _operator_marks(operators: HostEvents, span: int) -> tuple[_Marks, Ints]:
    """Returns also the keys that sort the marks by thread and time, ends first."""
    found = stacks(
        operators.thread.astype(np.min_scalar_type(int(operators.thread.max(initial=0)))),
        operators.event, operators.start, operators.duration, np.zeros(len(operators.event), dtype=bool),
    )  # fmt: skip
    row, ends = found.row, found.change < 0
    n_open = np.cumsum(found.change, dtype=np.int32)
    around = np.where(found.parent < 0, operators.event.dtype.type(-1), operators.event[found.parent])
    del found
    at = operators.start[row]
    ended = row[ends]
    at[ends] += operators.duration[ended]
    lasted = np.zeros(len(row), dtype=bool)
    lasted[ends] = operators.duration[ended] > 0
    del ended
    marks = _Marks(operators.thread[row], 2 * operators.event[row] + ends, at, n_open, around)
    keys = 2 * at
    keys += marks.thread * np.int64(span)
    keys += ~lasted
    return marks, keys


@dataclass(frozen=True)
class _FrameMarks:
    """Starts and ends of annotations and Python functions outside operators, arrays (f,), in order.

    `place` is the number of operators' marks before each; `inner`, `waits` tell of the innermost one that is open after
    it (-1: none); `is_node`: it lies in the window.
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
    at = np.concatenate((start, end))
    thread, event = (np.tile(column, 2) for column in (frames.thread, frames.event))
    is_end = np.arange(2 * n) >= n
    key = thread * np.int64(span) + 2 * np.clip(at, 0, span // 2 - 2)
    place = np.searchsorted(keys, key, side="right")
    outside = np.append(n_open, 0)[place - 1] == 0  # before the first mark: what the threads before left open, nothing
    # One that begins in an operator and ends in another spans what lies between.
    free = np.append(np.cumsum(n_open == 0), 0)[place - 1] * (place > 0)
    spans = outside[:n] | outside[n:] | (free[n:] > free[:n])
    kept = np.flatnonzero(np.tile(spans, 2))
    # At equal times: ends, the shorter first; then starts, the longer first. What begins before the window is around it.
    turn = np.where(
        is_end, frames.duration[np.arange(2 * n) % max(n, 1)], -frames.duration[np.arange(2 * n) % max(n, 1)]
    )
    early = np.where(at < 0, at, 0)
    kept = kept[np.lexsort((event[kept], turn[kept], is_end[kept] == 0, early[kept], key[kept]))]
    inner, around, owner = _innermost(
        (kept % max(n, 1)).tolist(), is_end[kept].tolist(), thread[kept].tolist(), frames.shown.tolist()
    )
    named = np.append(frames.event, frames.event.dtype.type(-1))
    is_node = (outside & (at >= 0) & (at <= until[thread]))[kept]
    marks = _FrameMarks(
        thread[kept], 2 * event[kept] + is_end[kept], at[kept], place[kept], named[inner],
        np.append(frames.waits, False)[inner], is_node,
    )  # fmt: skip
    entered = np.flatnonzero(owner >= 0)
    return marks, Frames(frames.thread[entered], named[entered], named[around[entered]], named[owner[entered]])


def _innermost(frame: list[int], is_end: list[bool], thread: list[int], rank: list[int]) -> tuple[Ints, Ints, Ints]:
    """Returns for each mark the frame that began last of those open after it (-1: none; frames may cross), and for each
    frame the one around it and the one that is shown as its owner, -1 for a frame without a mark.
    """
    n, stack, last = len(rank), [], -1
    closed, around, owner = bytearray(n), [-1] * n, [-1] * n
    inner = np.empty(len(frame), dtype=np.int64)
    for i, one in enumerate(frame):
        if thread[i] != last:
            stack, last = [], thread[i]
        if is_end[i]:
            closed[one] = 1
            while stack and closed[stack[-1]]:
                stack.pop()
        else:
            owner[one] = one
            if stack:
                around[one] = stack[-1]
                outer = owner[stack[-1]]
                if rank[outer] > rank[one]:
                    owner[one] = outer
            if not closed[one]:  # else it has no duration: its end came first, and it spans nothing
                stack.append(one)
        inner[i] = stack[-1] if stack else -1
    return inner, np.array(around, dtype=np.int64), np.array(owner, dtype=np.int64)


def _merged(marks: dict[str, Ints], gaps: _FrameMarks) -> HostNodes:
    """`marks`: the columns of _Marks, which are taken out."""
    n = len(marks["node"])
    kept = np.flatnonzero(gaps.is_node)
    # Columns are put together one after another: all of them twice would take the most memory of a long window's path.
    order = np.insert(np.arange(n, dtype=np.int32), gaps.place[kept], (n + kept).astype(np.int32))
    of_frame = order >= n

    def both(of_marks: Ints | Flags, of_gaps: Ints | Flags) -> Any:
        return np.append(of_marks, of_gaps)[order]

    nothing = np.zeros(len(gaps.node), dtype=np.int8)
    thread, node, at = (both(marks.pop(name), getattr(gaps, name)) for name in ("thread", "node", "at"))
    n_open, around = both(marks.pop("n_open"), nothing), both(marks.pop("around"), nothing - 1)
    # The innermost frame after each mark is that after the last frame's mark; after a thread's last there is none.
    place = np.searchsorted(gaps.place, np.arange(n, dtype=np.int32), side="right").astype(np.int32) - 1
    last = both(place, np.arange(len(gaps.node), dtype=np.int32))
    before = np.append(False, thread[1:] == thread[:-1])[: len(thread)]
    in_gap = before & (_one_before(n_open) == 0)
    previous = _one_before(node)
    # Inside an operator: of the one that began, of the one that ends, or of that around two that follow each other.
    owner = np.where(previous % 2 == 0, previous // 2, np.where(node % 2 == 1, node // 2, around))
    del previous, around
    last = _one_before(last)
    owner[in_gap] = np.append(gaps.inner, -1)[last[in_gap]]
    waits = in_gap & np.append(gaps.waits, False)[last]
    return HostNodes(thread, node, at, n_open, before, owner, in_gap, waits, of_frame)


def _one_before(column: Ints) -> Ints:
    """Returns for each place what stands at the one before it, -1 for the first."""
    found = np.empty_like(column)
    found[:1], found[1:] = -1, column[:-1]
    return found
