"""A window's graph as times: the edges, launches and waits inside intervals of host threads.

A timeline is built from the arrays of a `Window` or of `_cause_rows`. So a printed command and the number next to it
come from the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.stack_order import Ints

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_HELPING = 4
"""Maximum length of a chain of threads in which each thread works for the previous thread. For example, an autograd
thread works for the caller, and another device's autograd thread for the first autograd thread.
"""


@dataclass(frozen=True)
class Stretches:
    """Disjoint intervals of host threads, in order of thread and time (s,): `thread`, `start`, `end`, ns."""

    thread: Ints
    start: Ints
    end: Ints

    @classmethod
    def union(cls, thread: Ints, start: Ints, end: Ints) -> Stretches:
        """Merge intervals that overlap or touch."""
        order = np.lexsort((start, thread))
        thread, start, end = thread[order], start[order], end[order]
        if not len(order):
            return cls(thread, start, end)
        # One running maximum serves all threads, because their times are shifted so that threads do not overlap.
        _, number = np.unique(thread, return_inverse=True)
        shift = number * (int(end.max()) - int(start.min()) + 1)
        reach = np.maximum.accumulate(end + shift)
        begins = np.append(True, (start + shift)[1:] > reach[:-1])
        last = np.append(np.flatnonzero(begins)[1:] - 1, len(order) - 1)
        return cls(thread[begins], start[begins], (reach - shift)[last])

    def and_also(self, other: Stretches) -> Stretches:
        """Return the union of both sets of intervals."""
        pairs = zip(self._columns, other._columns, strict=True)
        return Stretches.union(*(np.concatenate(pair) for pair in pairs))

    def since(self, begin: int) -> Stretches:
        """Return the same intervals in times since `begin`, ns."""
        return Stretches(self.thread, self.start - begin, self.end - begin)

    @property
    def _columns(self) -> tuple[Ints, Ints, Ints]:
        return self.thread, self.start, self.end

    def covered(self, thread: Ints, start: Ints, end: Ints) -> Ints:
        """Return how much of each passed interval (m,) the intervals of its thread cover, ns."""
        return self._until(thread, end) - self._until(thread, start)

    def holds(self, thread: Ints, start: Ints, end: Ints) -> Flags:
        """Return for each passed interval (m,) whether a single interval of its thread contains it, ends included."""
        index = self.last_before(thread, start)
        clamped = np.maximum(index, 0)
        return (
            (index >= 0) & (self.thread[clamped] == thread) & (end <= self.end[clamped])
            if len(self.thread)
            else index >= 0
        )

    def last_before(self, thread: Ints, at: Ints) -> Ints:
        """Return for each time the index of the last interval that starts before or at the time, -1 if there is none.

        The intervals are ordered by thread, so the interval found may be of a preceding thread.
        """
        if not len(self.thread):
            return np.full(len(at), -1)
        first, last = int(self.start.min()), int(self.end.max())
        wide, numbers = last - first + 2, np.unique(self.thread)
        keys = np.searchsorted(numbers, self.thread) * wide + self.start - first + 1
        number = np.minimum(np.searchsorted(numbers, thread), len(numbers) - 1)
        index = np.searchsorted(keys, number * wide + np.clip(at - first + 1, 0, wide - 1), side="right") - 1
        return np.where(numbers[number] == thread, index, -1)

    def _until(self, thread: Ints, times: Ints) -> Ints:
        """Return how much time the intervals of its thread have before each time, ns.

        The result includes an offset that depends only on the thread, so only differences between times of a thread are
        valid.
        """
        if not len(self.thread):
            return np.zeros(len(times), dtype=np.int64)
        length = np.append(0, np.cumsum(self.end - self.start))
        index = self.last_before(thread, times)
        clamped = np.maximum(index, 0)
        on_thread = (index >= 0) & (self.thread[clamped] == thread)
        within = np.where(on_thread, np.minimum(times, self.end[clamped]) - self.start[clamped], 0)
        # Before the first interval of a thread, and on a thread without intervals, the index is the same for all times.
        return np.where(on_thread, length[clamped] + within, length[index + 1])


@dataclass(frozen=True)
class Timeline:
    """Edges (m,) and events (k,) of a window's graph. Times are in ns.

    `src`, `dst` and `owner` are indices of events. `owner` is -1 if there is none. `src_at`, `dst_at` are the times of
    an edge's ends. `to_start` marks edges that lead to an event's start. `is_own` marks edges that are their owner's
    self time. `is_launch` marks edges from a call to the work that it launched. `is_wait` marks waits for work of
    another stream. `is_earlier` marks waits for work from before the window.

    `at`, `end` are the times of an event, and `thread` is its thread, -1 on the GPU. `is_call` marks runtime and driver
    calls. `recorded_launch` is the call that launched GPU work, -1 if it is unknown or not one of these events.
    """

    src: Ints
    dst: Ints
    src_at: Ints
    dst_at: Ints
    to_start: Flags
    owner: Ints
    is_own: Flags
    is_launch: Flags
    is_wait: Flags
    is_earlier: Flags
    at: Ints
    end: Ints
    thread: Ints
    is_work: Flags
    is_call: Flags
    recorded_launch: Ints

    @cached_property
    def launch(self) -> Ints:
        """Return the call that launched each event (k,), -1 if there is none."""
        calls = self.recorded_launch.copy()
        # Work that a user added to the graph, and work in profile hta, has a launch edge, but no recorded launch.
        launches = np.flatnonzero(self.is_launch & self.to_work & (calls[self.dst] < 0))
        calls[self.dst[launches]] = self.src[launches]
        return calls

    @cached_property
    def to_work(self) -> Flags:
        """Return which edges lead to GPU work (m,)."""
        return self.is_work[self.dst]

    @property
    def dst_ns(self) -> Ints:
        """Return the duration of the event that each edge leads to (m,), ns."""
        return (self.end - self.at)[self.dst]

    @cached_property
    def is_host_wait(self) -> Flags:
        """Return which edges are waits of the host for GPU work (m,)."""
        return self.is_work[self.src] & ~self.to_work

    @cached_property
    def is_work_wait(self) -> Flags:
        """Return which edges are waits of GPU work for other work (m,).

        If the waiting work is removed, the work queued behind it still waits.
        """
        # If work began before the awaited work ended, by the GPU's clock, the wait is an edge from the start of the
        # awaited work, and counts as the awaited work's self time.
        is_late = self.is_own & (self.src != self.dst)
        return self.to_work & (self.is_earlier | self.is_work[self.src] & (self.is_wait | is_late))

    @cached_property
    def operator(self) -> Ints:
        """Return the operator around each call, and every other event itself (k,).

        The operator is the owner of the edge that leads to the call's start.
        """
        above = np.arange(len(self.at))
        leads = self.to_start & self.is_own & ~self.to_work & (self.owner >= 0) & (self.owner != self.dst)
        leads &= self.is_call[self.dst]
        above[self.dst[leads]] = self.owner[leads]
        for _ in range(2):  # up to three nested calls
            above = above[above]
        return above

    def holding(self, calls: Ints) -> Flags:
        """Return which host events contain one of these calls, or are one of them (k,)."""
        first = int(self.at.min())
        wide = int(self.end.max()) - first + 1
        shift = self.thread.astype(np.int64) * wide - first  # threads of captures are 32 bits wide
        starts = np.sort(shift[calls] + self.at[calls])
        begins, ends = (shift + times for times in (self.at, self.end))
        inside = np.searchsorted(starts, ends, side="right") - np.searchsorted(starts, begins)
        return ~self.is_work & (inside > 0)

    def of_events(self, chosen: Flags) -> Stretches:
        """Return the times of the chosen host events (k,), and the times in which other threads work for them."""
        mine = chosen & ~self.is_work
        return self.with_helpers(Stretches.union(self.thread[mine], self.at[mine], self.end[mine]))

    def with_helpers(self, stretches: Stretches) -> Stretches:
        """Add the times in which other threads work for these intervals, from a hand-off until the return."""
        for _ in range(_HELPING):
            more = stretches.and_also(self._helpers(stretches))
            if len(more.start) == len(stretches.start) and (more.end == stretches.end).all():
                return more
            stretches = more
        return stretches

    def _helpers(self, stretches: Stretches) -> Stretches:
        crossing = np.flatnonzero(self._crosses)
        src, dst = self.src[crossing], self.dst[crossing]
        src_at, dst_at = self.src_at[crossing], self.dst_at[crossing]
        begins = stretches.holds(self.thread[src], src_at, src_at)
        returns = stretches.holds(self.thread[dst], dst_at, dst_at)
        starts, ends = np.flatnonzero(begins & ~returns), np.flatnonzero(returns & ~begins)
        # A return belongs to the hand-offs from the same interval to the thread that returns.
        handed = stretches.last_before(self.thread[src[starts]], src_at[starts])
        back = stretches.last_before(self.thread[dst[ends]], dst_at[ends])
        threads, begun, ended = [], [], []
        for helper in np.unique(self.thread[dst[starts]]).tolist():
            hands_to = starts[self.thread[dst[starts]] == helper]
            handed_stretches = handed[self.thread[dst[starts]] == helper]
            returns_from = ends[self.thread[src[ends]] == helper]
            back_stretches = back[self.thread[src[ends]] == helper]
            for stretch in np.intersect1d(handed_stretches, back_stretches):
                first, last = (
                    dst_at[hands_to[handed_stretches == stretch]].min(),
                    src_at[returns_from[back_stretches == stretch]].max(),
                )
                if first < last:
                    threads.append(helper)
                    begun.append(first)
                    ended.append(last)
        return Stretches.union(*(np.array(column, dtype=np.int64) for column in (threads, begun, ended)))

    @cached_property
    def _crosses(self) -> Flags:
        """Return which edges lead from one host thread to another (m,)."""
        return self._on_host & (self.thread[self.src] != self.thread[self.dst])

    @cached_property
    def _on_host(self) -> Flags:
        """Return which edges lead from the host to the host (m,)."""
        return ~self.is_work[self.src] & ~self.to_work

    def share(self, stretches: Stretches) -> Floats:
        """Return the share of each edge's time that is host time inside the intervals (m,), 0 to 1."""
        thread = self.thread[self.dst]
        shares = np.zeros(len(self.src))
        host = np.flatnonzero(self._on_host & (self.thread[self.src] == thread))
        thread, start, end = thread[host], self.src_at[host], self.dst_at[host]
        inside = stretches.covered(thread, start, end) / np.maximum(end - start, 1)
        shares[host] = np.where(end > start, np.minimum(inside, 1), stretches.holds(thread, start, end))
        crossing = np.flatnonzero(self._crosses)
        for side, side_at in ((self.src, self.src_at), (self.dst, self.dst_at)):
            times = side_at[crossing]
            crossing = crossing[stretches.holds(self.thread[side[crossing]], times, times)]
        shares[crossing] = 1
        return shares

    def launched(self, stretches: Stretches) -> Flags:
        """Return which GPU work was launched inside the intervals (k,)."""
        work = np.flatnonzero(self.launch >= 0)
        call = self.launch[work]
        inside = np.zeros(len(self.at), dtype=bool)
        inside[work[stretches.holds(self.thread[call], self.at[call], self.end[call])]] = True
        return inside

    def waits(self, stretches: Stretches) -> Flags:
        """Return which edges are waits for the GPU by calls inside the intervals (m,)."""
        inside, host = np.zeros(len(self.src), dtype=bool), np.flatnonzero(self.is_host_wait)
        call = self.dst[host]
        inside[host[stretches.holds(self.thread[call], self.at[call], self.end[call])]] = True
        return inside

    def own_waits(self, work: Flags) -> Flags:
        """Return which edges are waits for the chosen work (k,) by its launch call, or by a call of the same operator.

        These waits disappear with the work. Other calls still wait for the work that remains on the stream.
        """
        is_own_wait, chosen = np.zeros(len(self.src), dtype=bool), np.flatnonzero(self.is_host_wait & work[self.src])
        launch = self.launch[self.src[chosen]]
        call = self.dst[chosen]
        same = (launch >= 0) & ((launch == call) | (self.operator[launch] == self.operator[call]))
        is_own_wait[chosen[same]] = True
        return is_own_wait
