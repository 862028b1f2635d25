"""A window's graph as times: what is inside a stretch of a host thread, what was launched there, and what waits there.

Built from the arrays of a `Window` or of `_cause_rows`, so a printed command and the number next to it come from the same code.
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
"""How many threads in a row work for each other: the autograd engine's for the caller's, one device's for another's."""


@dataclass(frozen=True)
class Stretches:
    """Times of host threads that do not overlap, in order of thread and time (s,): `thread`, `start`, `end`, ns."""

    thread: Ints
    start: Ints
    end: Ints

    @classmethod
    def union(cls, thread: Ints, start: Ints, end: Ints) -> Stretches:
        """Merges stretches that overlap or touch."""
        order = np.lexsort((start, thread))
        thread, start, end = thread[order], start[order], end[order]
        if not len(order):
            return cls(thread, start, end)
        # A running maximum for each thread: threads are shifted behind each other.
        _, number = np.unique(thread, return_inverse=True)
        shift = number * (int(end.max()) - int(start.min()) + 1)
        reach = np.maximum.accumulate(end + shift)
        begins = np.append(True, (start + shift)[1:] > reach[:-1])
        last = np.append(np.flatnonzero(begins)[1:] - 1, len(order) - 1)
        return cls(thread[begins], start[begins], (reach - shift)[last])

    def and_also(self, other: Stretches) -> Stretches:
        """Returns the times that are in either."""
        pairs = zip(self._columns, other._columns, strict=True)
        return Stretches.union(*(np.concatenate(pair) for pair in pairs))

    @property
    def _columns(self) -> tuple[Ints, Ints, Ints]:
        return self.thread, self.start, self.end

    def covered(self, thread: Ints, start: Ints, end: Ints) -> Ints:
        """Returns how much of each time of a thread is inside, ns (m,)."""
        return self._until(thread, end) - self._until(thread, start)

    def holds(self, thread: Ints, start: Ints, end: Ints) -> Flags:
        """Returns which times of threads are inside as a whole, both ends included (m,)."""
        place = self.last_before(thread, start)
        at = np.maximum(place, 0)
        return (place >= 0) & (self.thread[at] == thread) & (end <= self.end[at]) if len(self.thread) else place >= 0

    def last_before(self, thread: Ints, at: Ints) -> Ints:
        """Returns the last stretch of all that begins before or at each time; those of other threads among them. -1: none."""
        if not len(self.thread):
            return np.full(len(at), -1)
        first, last = int(self.start.min()), int(self.end.max())
        wide, numbers = last - first + 2, np.unique(self.thread)
        own = np.searchsorted(numbers, self.thread) * wide + self.start - first + 1
        number = np.minimum(np.searchsorted(numbers, thread), len(numbers) - 1)
        place = np.searchsorted(own, number * wide + np.clip(at - first + 1, 0, wide - 1), side="right") - 1
        return np.where(numbers[number] == thread, place, -1)

    def _until(self, thread: Ints, at: Ints) -> Ints:
        """Returns how much is inside before each time, of the times of its thread and, the same for both ends, of others."""
        if not len(self.thread):
            return np.zeros(len(at), dtype=np.int64)
        length = np.append(0, np.cumsum(self.end - self.start))
        place = self.last_before(thread, at)
        there = np.maximum(place, 0)
        own = (place >= 0) & (self.thread[there] == thread)
        within = np.where(own, np.minimum(at, self.end[there]) - self.start[there], 0)
        # Before the first stretch of the thread, and on a thread without any, the place is the same for all its times.
        return np.where(own, length[there] + within, length[place + 1])


@dataclass(frozen=True)
class Timeline:
    """Edges (m,) and events (k,) of a window's graph. Times in ns; `src`, `dst` and `owner` are places among the events, -1
    for nobody; `src_at`, `dst_at` the times of an edge's ends; `thread` is -1 on the GPU. `to_start`: the edge leads to an
    event's start. `is_own`: its time is that of its owner; `is_launch`: from a call to the work that it launched; `is_wait`:
    for work of another stream.
    `is_call` (k,): a runtime or driver call.
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
    at: Ints
    end: Ints
    thread: Ints
    is_work: Flags
    is_call: Flags

    @cached_property
    def launch(self) -> Ints:
        """Returns for each event the call that launched it (k,), -1 for none."""
        calls = np.full(len(self.at), -1)
        launches = np.flatnonzero(self.is_launch & self.to_work)
        calls[self.dst[launches]] = self.src[launches]
        return calls

    @cached_property
    def to_work(self) -> Flags:
        """Returns which edges lead to GPU work (m,)."""
        return self.is_work[self.dst]

    @cached_property
    def is_host_wait(self) -> Flags:
        """Returns which edges are waits of the host for GPU work (m,)."""
        return self.is_work[self.src] & ~self.to_work

    @cached_property
    def is_work_wait(self) -> Flags:
        """Returns which edges are waits of GPU work for other work (m,): who waits behind it still does without it."""
        return self.to_work & self.is_work[self.src] & self.is_wait

    @cached_property
    def operator(self) -> Ints:
        """Returns for each call the operator around it, by the edge whose time led up to it; itself for others (k,)."""
        above = np.arange(len(self.at))
        leads = self.to_start & self.is_own & ~self.to_work & (self.owner >= 0) & (self.owner != self.dst)
        leads &= self.is_call[self.dst]
        above[self.dst[leads]] = self.owner[leads]
        for _ in range(2):  # a call in a call in a call
            above = above[above]
        return above

    def holding(self, calls: Ints) -> Flags:
        """Returns which host events have one of these inside, or are one of them (k,)."""
        first = int(self.at.min())
        wide = int(self.end.max()) - first + 1
        starts = np.sort(self.thread[calls] * wide + self.at[calls] - first)
        begins, ends = (self.thread * wide + at - first for at in (self.at, self.end))
        inside = np.searchsorted(starts, ends, side="right") - np.searchsorted(starts, begins)
        return ~self.is_work & (inside > 0)

    def of_events(self, chosen: Flags) -> Stretches:
        """Returns the times of the chosen events (k,) of the host, and those in which other threads work for them."""
        mine = chosen & ~self.is_work
        return self.with_helpers(Stretches.union(self.thread[mine], self.at[mine], self.end[mine]))

    def with_helpers(self, stretches: Stretches) -> Stretches:
        """Adds what other threads do for these stretches: from a hand-off to them until they hand back."""
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
        # Each return belongs to the last hand-off before it, from the same stretch to the thread that returns.
        handed = stretches.last_before(self.thread[src[starts]], src_at[starts])
        back = stretches.last_before(self.thread[dst[ends]], dst_at[ends])
        threads, begun, ended = [], [], []
        for helper in np.unique(self.thread[dst[starts]]).tolist():
            to = starts[self.thread[dst[starts]] == helper]
            of = handed[self.thread[dst[starts]] == helper]
            from_ = ends[self.thread[src[ends]] == helper]
            by = back[self.thread[src[ends]] == helper]
            for stretch in np.intersect1d(of, by):
                first, last = dst_at[to[of == stretch]].min(), src_at[from_[by == stretch]].max()
                if first < last:
                    threads.append(helper)
                    begun.append(first)
                    ended.append(last)
        return Stretches.union(*(np.array(column, dtype=np.int64) for column in (threads, begun, ended)))

    @cached_property
    def _crosses(self) -> Flags:
        """Which edges lead from one host thread to another (m,)."""
        return self._on_host & (self.thread[self.src] != self.thread[self.dst])

    @cached_property
    def _on_host(self) -> Flags:
        """Which edges lead from the host to the host (m,)."""
        return ~self.is_work[self.src] & ~self.to_work

    def share(self, stretches: Stretches) -> Floats:
        """Returns how much of each edge's time is host time inside (m,), 0 to 1."""
        thread = self.thread[self.dst]
        shares = np.zeros(len(self.src))
        host = np.flatnonzero(self._on_host & (self.thread[self.src] == thread))
        thread, start, end = thread[host], self.src_at[host], self.dst_at[host]
        inside = stretches.covered(thread, start, end) / np.maximum(end - start, 1)
        shares[host] = np.where(end > start, np.minimum(inside, 1), stretches.holds(thread, start, end))
        crossing = np.flatnonzero(self._crosses)
        for side, at in ((self.src, self.src_at), (self.dst, self.dst_at)):
            times = at[crossing]
            crossing = crossing[stretches.holds(self.thread[side[crossing]], times, times)]
        shares[crossing] = 1
        return shares

    def launched(self, stretches: Stretches) -> Flags:
        """Returns which GPU work was launched inside (k,)."""
        work = np.flatnonzero(self.launch >= 0)
        call = self.launch[work]
        inside = np.zeros(len(self.at), dtype=bool)
        inside[work[stretches.holds(self.thread[call], self.at[call], self.end[call])]] = True
        return inside

    def waits(self, stretches: Stretches) -> Flags:
        """Returns which edges are waits for the GPU of calls inside (m,)."""
        inside, host = np.zeros(len(self.src), dtype=bool), np.flatnonzero(self.is_host_wait)
        call = self.dst[host]
        inside[host[stretches.holds(self.thread[call], self.at[call], self.end[call])]] = True
        return inside

    def own_waits(self, work: Flags) -> Flags:
        """Returns which edges are waits for the chosen work (k,) by the call that launched it, or by another one in the same
        operator: without the work there is no such wait. Others wait for whatever is left on the stream.
        """
        own, chosen = np.zeros(len(self.src), dtype=bool), np.flatnonzero(self.is_host_wait & work[self.src])
        launch = self.launch[self.src[chosen]]
        call = self.dst[chosen]
        same = (launch >= 0) & ((launch == call) | (self.operator[launch] == self.operator[call]))
        own[chosen[same]] = True
        return own
