"""Hand-offs between host threads: a thread continues because another thread has finished its work.

The autograd engine's threads start when the thread that called backward stops. The calling thread continues when they
end. Names and arrows identify these threads. Otherwise, a hand-off is inferred if a thread was outside operators while
another thread worked, and the other thread stopped right before the first thread continued. Threads that only poll
whether GPU work has ended are excluded. So are threads that are still working, because a coincidence of times alone is
not a hand-off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.graph.host_nodes import Columns, HostNodes
from pipelines.critical_path.graph.stack_order import Flags, Ints

SHORT_NS = threshold("hand_off_short_ns")
_LEAST_NS = threshold("hand_off_gap_ns")
_RIGHT_BEFORE = threshold("hand_off_right_before")
_WORKING = threshold("hand_off_working")
_BEFORE_ALL = 1 << 60  # larger than any time, ns
_NEAR = 32  # number of changes from one stopping thread to another that are searched before a gap's end


@dataclass(frozen=True)
class Roles:
    """The roles of a window's threads, arrays (t,), as in `_thread_roles`."""

    process: Ints
    works: Flags
    autograd: Flags
    calls: Flags
    serves: Flags


@dataclass(frozen=True)
class HandOffs(Columns):
    """Hand-offs, arrays (h,). Node `to` continues after node `of`, both as indices of nodes.

    `inferred` is whether the hand-off follows only from times, not from names or arrows.
    """

    to: Ints
    of: Ints
    inferred: Flags


class _Thread:
    """The nodes first … past of a thread, its intervals of work (an operator is open), and its gaps."""

    def __init__(self, nodes: HostNodes, first: int, past: int) -> None:
        self.first, self.past = first, past
        self.at = nodes.at[first:past]
        opens = nodes.node[first:past] % 2 == 0
        self.n_open = nodes.n_open[first:past]
        operators = ~nodes.of_frame[first:past]
        begin = np.flatnonzero(operators & opens & (self.n_open == 1))
        end = np.flatnonzero(operators & ~opens & (self.n_open == 0))
        lasting = self.at[begin] < self.at[end]
        self.begin, self.end = begin[lasting], end[lasting]
        self.begin_ns, self.end_ns = self.at[self.begin], self.at[self.end]
        before = np.append(False, nodes.before[first + 1 : past])
        self.gaps = np.flatnonzero(nodes.in_gap[first:past] | ~before)  # the first node, and nodes that end a gap
        self.since = np.where(before[self.gaps], self.at[self.gaps - 1], -1)
        self.until = self.at[self.gaps]
        self.lasted = self.until - self.since
        self.waits = nodes.waits[first:past][self.gaps]

    @cached_property
    def worked(self) -> Ints:
        """Return the cumulative time worked at the end of each interval of work, ns, with a leading 0."""
        return np.append(0, np.cumsum(self.end_ns - self.begin_ns))

    def worked_by(self, at: Ints) -> Ints:
        """Return the cumulative time worked until each time in `at`, ns."""
        n_begun = np.searchsorted(self.begin_ns, at, side="right")
        done = self.worked[np.searchsorted(self.end_ns, at, side="right")]
        inside = (n_begun > 0) & (np.append(np.iinfo(np.int64).min, self.end_ns)[n_begun] > at)
        return done + np.where(inside, at - np.append(0, self.begin_ns)[n_begun], 0)

    def stopped_by(self, since: Ints, until: Ints) -> tuple[Ints, Ints]:
        """Return the node where this thread's last work in each gap of another thread ended, and its time.

        The node is an index among this thread's nodes. It is -1 if no work of this thread ended in the gap, or if this
        thread is working at the gap's end.
        """
        k = np.searchsorted(self.end_ns, until, side="right") - 1
        end_ns = np.append(self.end_ns, -2)[k]
        goes_on = np.searchsorted(self.begin_ns, until, side="left") > k + 1
        is_stop = (k >= 0) & (end_ns > since) & ~goes_on
        return np.where(is_stop, np.append(self.end, -1)[k], -1), np.where(is_stop, end_ns, -2)

    def goes_on_soon(self, until: Ints) -> Flags:
        """Return whether this thread starts to work within `_LEAST_NS` after each time in `until`.

        The times are the ends of another thread's gaps.
        """
        index = np.searchsorted(self.begin_ns, until, side="right")
        return np.append(self.begin_ns, np.iinfo(np.int64).max)[index] - until < _LEAST_NS

    def last_before(self, since: Ints, until: Ints, *, inside: bool = False) -> tuple[Ints, Ints]:
        """Return this thread's last node within each gap of another thread, and the node's time.

        The node is an index among this thread's nodes, -1 if there is none. A node inside an operator counts only if
        `inside` is set.
        """
        k = np.searchsorted(self.at, until, side="left") - 1
        at_ns = np.append(self.at, -2)[k]
        is_in_gap = (k >= 0) & (at_ns > since) & (inside | (np.append(self.n_open, 1)[k] == 0))
        return np.where(is_in_gap, k, -1), np.where(is_in_gap, at_ns, -2)


def hand_offs(nodes: HostNodes, bounds: list[tuple[int, int]], roles: Roles) -> HandOffs:
    """Return the hand-offs between the threads of one window.

    `bounds` contains the first node and the node past the last of each thread.
    """
    threads = [_Thread(nodes, first, past) for first, past in bounds]
    firsts, stops = _firsts(threads, roles), _Stops(threads, roles)
    targets: list[Ints] = []
    sources: list[Ints] = []
    inferred: list[Flags] = []
    calls = ~roles.autograd & roles.works & (roles.calls | ~roles.calls.any())
    for number, thread in enumerate(threads):
        if not len(thread.gaps):
            continue
        source, at_ns = np.full(len(thread.gaps), -1), np.full(len(thread.gaps), -2 - _BEFORE_ALL)
        is_other = (roles.process == roles.process[number]) & (np.arange(len(threads)) != number)
        hinted = np.zeros(0, dtype=np.int64)
        if roles.autograd[number]:
            hinted = np.flatnonzero(is_other & calls)
            for i in hinted.tolist():
                _later(source, at_ns, threads[i], *threads[i].last_before(thread.since, thread.until))
        elif roles.serves[number]:
            # An operator of the calling thread starts the work, and continues until it needs the result.
            hinted = np.flatnonzero(is_other & calls & ~roles.serves)
            for i in hinted.tolist():
                _later(source, at_ns, threads[i], *threads[i].last_before(thread.since, thread.until, inside=True))
        elif calls[number]:
            hinted = np.flatnonzero(is_other & roles.autograd)
            for i in hinted.tolist():
                _later(source, at_ns, threads[i], *threads[i].stopped_by(thread.since, thread.until))
        is_explicit = source >= 0
        to_infer = np.flatnonzero(~is_explicit & (thread.since >= 0) & (thread.waits | (thread.lasted >= _LEAST_NS)))
        for i, places in stops.right_before(thread, to_infer, roles.process[number]):
            if is_other[i] and i not in hinted:
                _infer(source, at_ns, places, thread, threads[i])
        if thread.since[0] < 0 and source[0] < 0:
            source[0] = firsts[number]
        handed_over = np.flatnonzero(source >= 0)
        targets.append(thread.first + thread.gaps[handed_over])
        sources.append(source[handed_over])
        inferred.append(~is_explicit[handed_over])
    if not targets:
        nothing = np.zeros(0, dtype=np.int64)
        return HandOffs(nothing, nothing, nothing.astype(bool))
    return HandOffs(np.concatenate(targets), np.concatenate(sources), np.concatenate(inferred))


class _Stops:
    """The times at which the threads of each process stopped working, in order, with the thread that stopped."""

    def __init__(self, threads: list[_Thread], roles: Roles) -> None:
        self._of_process: dict[int, tuple[Ints, Ints]] = {}
        self._threads: dict[int, list[int]] = {}
        for process in np.unique(roles.process).tolist():
            these = [i for i in np.flatnonzero(roles.process == process).tolist() if len(threads[i].end_ns)]
            self._threads[process] = these
            if len(these) > _NEAR:
                end_ns = np.concatenate([threads[i].end_ns for i in these])
                number = np.repeat(these, [len(threads[i].end_ns) for i in these])
                order = np.argsort(end_ns, kind="stable")
                # Of consecutive stops of one thread, only the first is kept, because only the thread is needed.
                number, end_ns = number[order], end_ns[order]
                starts = np.append(True, np.diff(number) != 0)
                self._of_process[process] = end_ns[starts], number[starts]

    def right_before(self, thread: _Thread, gaps: Ints, process: int) -> Iterator[tuple[int, Ints]]:
        """Yield the process's threads in order, each with the gaps before whose end it was among the last to stop.

        In a process with more than `_NEAR` threads, a thread counts only if it stopped within the last `_NEAR` changes
        from one thread to another. Otherwise the cost would grow with the square of the number of threads.
        """
        if process not in self._of_process:
            yield from ((i, gaps) for i in self._threads[process] if len(gaps))
            return
        end_ns, number = self._of_process[process]
        index = np.searchsorted(end_ns, thread.until[gaps], side="right")[:, None] - np.arange(1, _NEAR + 1)
        gap = np.broadcast_to(gaps[:, None], index.shape)[index >= 0]
        pairs = np.unique(number[index[index >= 0]] * np.int64(len(thread.gaps)) + gap)
        owner, gap = np.divmod(pairs, len(thread.gaps))
        for part in np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(owner)) + 1):
            if len(part):
                yield int(owner[part[0]]), gap[part]


def _later(source: Ints, at_ns: Ints, other: _Thread, node: Ints, when: Ints) -> None:
    """Replace the source of each gap by a node of another thread, if that node is later than the source so far.

    `node` are indices among the other thread's nodes, -1 for none, and `when` their times. `at_ns` are the times of the
    sources.
    """
    later = (node >= 0) & (when > at_ns)
    source[later], at_ns[later] = other.first + node[later], when[later]


def _infer(source: Ints, at_ns: Ints, places: Ints, thread: _Thread, other: _Thread) -> None:
    since, until, lasted = thread.since[places], thread.until[places], thread.lasted[places]
    node, when = other.stopped_by(since, until)
    worked = other.worked_by(until) - other.worked_by(since)
    shortly = until - when <= np.maximum(_LEAST_NS, _RIGHT_BEFORE * lasted)
    # A thread that works again right after the gap was probably not awaited: rank it behind the others.
    when = np.where(other.goes_on_soon(until), when - _BEFORE_ALL, when)
    fits = (node >= 0) & (when > at_ns[places]) & (thread.waits[places] | shortly & (worked >= _WORKING * lasted))
    source[places[fits]], at_ns[places[fits]] = other.first + node[fits], when[fits]


def _firsts(threads: list[_Thread], roles: Roles) -> Ints:
    """Return for each thread the node that the thread's first node follows, -1 if there is none.

    The followed node is the latest earlier node of another thread of the process, autograd's threads excluded. A
    working thread follows another working thread if possible, rather than a thread that logs or pins memory.
    """
    first_ns = np.array([int(thread.at[0]) for thread in threads])
    source, when = np.full(len(threads), -1), np.full(len(threads), -2)
    for counts in (roles.works, np.ones_like(roles.works)):
        asking = (source < 0) & counts
        for i in np.flatnonzero(~roles.autograd & counts).tolist():
            k = np.searchsorted(threads[i].at, first_ns, side="left") - 1
            is_later = asking & (k >= 0) & (roles.process == roles.process[i]) & (threads[i].at[k] > when)
            source[is_later], when[is_later] = threads[i].first + k[is_later], threads[i].at[k[is_later]]
    return source
