"""The nodes of host threads in the order in which each thread passes them, and whose time lies between two of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.critical_path.graph.stack_order import Flags, Ints, stacks


@dataclass(frozen=True)
class HostEvents:
    """CPU events of threads, arrays (n,): `thread` numbers threads of windows from 0, ascending; `start` counts from the
    window's start, `until` is its end, ns. `is_operator`: else an annotation or a Python function. `waits`: one that is
    named after a wait for another thread; `shown`: one that is shown as the owner of what is inside it (0 no, 1 a function
    of a module or of the user's, 2 an annotation other than a step). `blocks`: a call that may wait for the GPU.
    """

    thread: Ints
    event: Ints
    start: Ints
    duration: Ints
    until: Ints
    is_operator: Flags
    blocks: Flags
    waits: Flags
    shown: Ints

    def __getitem__(self, chosen: Flags | Ints) -> HostEvents:
        return HostEvents(*(getattr(self, name)[chosen] for name in HostEvents.__dataclass_fields__))


@dataclass(frozen=True)
class HostNodes:
    """Nodes of threads, arrays (m,), in the order of threads, and of time on each.

    `node` is twice the event, plus 1 for its end; `at` its time since the window's start, ns. `n_open`: operators open
    after it. `before`: whether the node before it is on the same thread; the time in between belongs to event `owner`
    (-1: nobody known), which is outside operators where `in_gap`, and in a frame named after a wait where `waits`.
    `blocks`: it ends a call that may wait for the GPU. `of_frame`: of an annotation or a Python function.
    """

    thread: Ints
    node: Ints
    at: Ints
    n_open: Ints
    before: Flags
    owner: Ints
    in_gap: Flags
    waits: Flags
    blocks: Flags
    of_frame: Flags


@dataclass(frozen=True)
class _Marks:
    """Starts and ends, arrays: `key` sorts them by thread and time, ends first."""

    key: Ints
    thread: Ints
    node: Ints
    at: Ints


@dataclass(frozen=True)
class Frames:
    """Annotations and Python functions outside operators, arrays (k,): events, that of the one around each (-1: none), and
    that of the one shown as its owner: the annotation around it, else the module's or user's own function, else itself.
    """

    thread: Ints
    event: Ints
    around: Ints
    shown: Ints


def host_nodes(events: HostEvents) -> tuple[HostNodes, Frames]:
    """Returns the nodes of all operators, and of those annotations and Python functions that begin or end outside them."""
    span = 2 * int((events.start + events.duration).max(initial=0)) + 4
    operators, frames = events[events.is_operator], events[~events.is_operator]
    found = stacks(
        operators.thread.astype(np.min_scalar_type(int(events.thread.max(initial=0)))),
        operators.event, operators.start, operators.duration, np.zeros(len(operators.event), dtype=bool),
    )  # fmt: skip
    row, ends = found.row, found.change < 0
    lasting = operators.duration[row] > 0
    at = operators.start[row] + np.where(ends, operators.duration[row], 0)
    thread = operators.thread[row]
    marks = _Marks(thread * span + 2 * at + ~(ends & lasting), thread, 2 * operators.event[row] + ends, at)
    n_open = np.cumsum(found.change, dtype=np.int64)
    around = np.where(found.parent < 0, -1, operators.event[found.parent])
    blocks = operators.blocks[row] & ends
    gaps, owners = _frame_marks(frames, marks.key, n_open, span)
    return _merged(marks, n_open, around, blocks, gaps), owners


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


def _frame_marks(frames: HostEvents, keys: Ints, n_open: Ints, span: int) -> tuple[_FrameMarks, Frames]:
    n = len(frames.event)
    start, end = frames.start, frames.start + frames.duration
    at = np.concatenate((start, end))
    thread, event, until = (np.tile(column, 2) for column in (frames.thread, frames.event, frames.until))
    is_end = np.arange(2 * n) >= n
    key = thread * span + 2 * np.clip(at, 0, span // 2 - 2)
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
    named = np.append(frames.event, -1)
    is_node = (outside & (at >= 0) & (at <= until))[kept]
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
            stack.append(one)
        inner[i] = stack[-1] if stack else -1
    return inner, np.array(around, dtype=np.int64), np.array(owner, dtype=np.int64)


def _merged(marks: _Marks, n_open: Ints, around: Ints, blocks: Flags, gaps: _FrameMarks) -> HostNodes:
    thread = np.insert(marks.thread, gaps.place, gaps.thread)
    node = np.insert(marks.node, gaps.place, gaps.node)
    at = np.insert(marks.at, gaps.place, gaps.at)
    n_open = np.insert(n_open, gaps.place, 0)
    of_frame = np.insert(np.zeros(len(marks.node), dtype=bool), gaps.place, True)
    around = np.insert(around, gaps.place, -1)
    blocks = np.insert(blocks, gaps.place, False)
    # The innermost frame after each mark is that after the last frame's mark on its thread.
    last = np.maximum.accumulate(np.where(of_frame, np.arange(len(node)), -1))
    known = (last >= 0) & (thread[last] == thread) if len(node) else of_frame
    number = np.cumsum(of_frame) - 1
    inner = np.where(known, np.append(gaps.inner, -1)[np.where(known, number, -1)], -1)
    waits = np.where(known, np.append(gaps.waits, False)[np.where(known, number, -1)], False)
    is_node = np.insert(np.ones(len(marks.node), dtype=bool), gaps.place, gaps.is_node)
    thread, node, at, n_open, of_frame, around, blocks, inner, waits = (
        column[is_node] for column in (thread, node, at, n_open, of_frame, around, blocks, inner, waits)
    )
    before = np.append(False, thread[1:] == thread[:-1])[: len(thread)]
    in_gap = before & (np.append(0, n_open)[:-1] == 0)
    previous = np.append(-1, node)[:-1]
    # Inside an operator: of the one that began, of the one that ends, or of that around two that follow each other.
    own = np.where(previous % 2 == 0, previous // 2, np.where(node % 2 == 1, node // 2, around))
    owner = np.where(in_gap, np.append(-1, inner)[:-1], own)
    waits = in_gap & np.append(False, waits)[:-1]
    return HostNodes(thread, node, at, n_open, before, owner, in_gap, waits, blocks & ~in_gap, of_frame)
