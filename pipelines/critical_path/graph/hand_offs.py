"""Where a host thread went on because another one had done its work: autograd's threads, and waits told by names and times.

The autograd engine's threads begin when the thread that called backward stops, and that one goes on when they end; names
and arrows say which threads these are. Otherwise a thread waited for another one if it was outside operators while the
other worked and then stopped right before it went on; such a hand-off is inferred. A thread that only asks whether GPU work
has ended takes no part, and neither does work that goes on: a coincidence of times alone is no hand-off.
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
_BEFORE_ALL = 1 << 60  # later than any time
_NEAR = 32  # threads are asked which stopped that late before a gap's end


@dataclass(frozen=True)
class Roles:
    """What is known of each thread of a window, arrays (t,): as in `_thread_roles`."""

    process: Ints
    works: Flags
    autograd: Flags
    calls: Flags
    serves: Flags


@dataclass(frozen=True)
class HandOffs(Columns):
    """Hand-offs, arrays (h,): node `to` goes on after node `of` (indices of nodes)."""

    to: Ints
    of: Ints
    inferred: Flags


class _Thread:
    """The nodes first … past of a thread, and its stretches of work outside which it has no operator open."""

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
        self.gaps = np.flatnonzero(nodes.in_gap[first:past] | ~before)  # the nodes that end them, the first node too
        self.since = np.where(before[self.gaps], self.at[self.gaps - 1], -1)
        self.until = self.at[self.gaps]
        self.lasted = self.until - self.since
        self.waits = nodes.waits[first:past][self.gaps]

    @cached_property
    def worked(self) -> Ints:
        """Time worked by the end of each stretch of work, and 0 before the first."""
        return np.append(0, np.cumsum(self.end_ns - self.begin_ns))

    def worked_by(self, at: Ints) -> Ints:
        """Returns the time worked until then."""
        place = np.searchsorted(self.begin_ns, at, side="right")
        done = self.worked[np.searchsorted(self.end_ns, at, side="right")]
        inside = (place > 0) & (np.append(np.iinfo(np.int64).min, self.end_ns)[place] > at)
        return done + np.where(inside, at - np.append(0, self.begin_ns)[place], 0)

    def stopped_by(self, since: Ints, until: Ints) -> tuple[Ints, Ints]:
        """Returns for gaps of another thread the node (index among its own) that ended the last work of this one in the
        gap, -1 where it has none or goes on at its end; and when that was.
        """
        k = np.searchsorted(self.end_ns, until, side="right") - 1
        end_ns = np.append(self.end_ns, -2)[k]
        goes_on = np.searchsorted(self.begin_ns, until, side="left") > k + 1
        there = (k >= 0) & (end_ns > since) & ~goes_on
        return np.where(there, np.append(self.end, -1)[k], -1), np.where(there, end_ns, -2)

    def goes_on_soon(self, until: Ints) -> Flags:
        """Returns for ends of gaps of another thread whether this one works again within _LEAST_NS after them."""
        place = np.searchsorted(self.begin_ns, until, side="right")
        return np.append(self.begin_ns, np.iinfo(np.int64).max)[place] - until < _LEAST_NS

    def last_before(self, since: Ints, until: Ints, *, inside: bool = False) -> tuple[Ints, Ints]:
        """Returns the last node (index among its own) outside operators, or with `inside` wherever it is, within the gaps of
        another thread, -1 for none, and when that was.
        """
        k = np.searchsorted(self.at, until, side="left") - 1
        at = np.append(self.at, -2)[k]
        there = (k >= 0) & (at > since) & (inside | (np.append(self.n_open, 1)[k] == 0))
        return np.where(there, k, -1), np.where(there, at, -2)


def hand_offs(nodes: HostNodes, bounds: list[tuple[int, int]], roles: Roles) -> HandOffs:
    """Returns the hand-offs between the threads of one window; `bounds`: first and past the last node of each."""
    threads = [_Thread(nodes, first, past) for first, past in bounds]
    firsts, stops = _firsts(threads, roles), _Stops(threads, roles)
    to: list[Ints] = []
    of: list[Ints] = []
    inferred: list[Flags] = []
    calls = ~roles.autograd & roles.works & (roles.calls | ~roles.calls.any())
    for number, thread in enumerate(threads):
        if not len(thread.gaps):
            continue
        source, at_ns = np.full(len(thread.gaps), -1), np.full(len(thread.gaps), -2 - _BEFORE_ALL)
        beside = (roles.process == roles.process[number]) & (np.arange(len(threads)) != number)
        hinted = np.zeros(0, dtype=np.int64)
        if roles.autograd[number]:
            hinted = np.flatnonzero(beside & calls)
            for i in hinted.tolist():
                _later(source, at_ns, threads[i], *threads[i].last_before(thread.since, thread.until))
        elif roles.serves[number]:
            # What it runs was begun by an operator of the thread that calls, which goes on until it needs the result.
            hinted = np.flatnonzero(beside & calls & ~roles.serves)
            for i in hinted.tolist():
                _later(source, at_ns, threads[i], *threads[i].last_before(thread.since, thread.until, inside=True))
        elif calls[number]:
            hinted = np.flatnonzero(beside & roles.autograd)
            for i in hinted.tolist():
                _later(source, at_ns, threads[i], *threads[i].stopped_by(thread.since, thread.until))
        told = source >= 0
        asked = np.flatnonzero(~told & (thread.since >= 0) & (thread.waits | (thread.lasted >= _LEAST_NS)))
        for i, places in stops.right_before(thread, asked, roles.process[number]):
            if beside[i] and i not in hinted:
                _infer(source, at_ns, places, thread, threads[i])
        if thread.since[0] < 0 and source[0] < 0:
            source[0] = firsts[number]
        found = np.flatnonzero(source >= 0)
        to.append(thread.first + thread.gaps[found])
        of.append(source[found])
        inferred.append(~told[found])
    if not to:
        nothing = np.zeros(0, dtype=np.int64)
        return HandOffs(nothing, nothing, nothing.astype(bool))
    return HandOffs(np.concatenate(to), np.concatenate(of), np.concatenate(inferred))


class _Stops:
    """When the threads of each process stopped working, in order of time, and which thread it was."""

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
                # Of one thread's stops, one after another, the first: only which thread it was is asked.
                number, end_ns = number[order], end_ns[order]
                starts = np.append(True, np.diff(number) != 0)
                self._of_process[process] = end_ns[starts], number[starts]

    def right_before(self, thread: _Thread, gaps: Ints, process: int) -> Iterator[tuple[int, Ints]]:
        """Yields threads, in their order, and those of the gaps before whose end they were among the last to stop.

        Of more than _NEAR threads only those count that stopped within the last _NEAR changes from one thread to another:
        else their cost would grow with the square of their number.
        """
        if process not in self._of_process:
            yield from ((i, gaps) for i in self._threads[process] if len(gaps))
            return
        end_ns, number = self._of_process[process]
        place = np.searchsorted(end_ns, thread.until[gaps], side="right")[:, None] - np.arange(1, _NEAR + 1)
        gap = np.broadcast_to(gaps[:, None], place.shape)[place >= 0]
        pairs = np.unique(number[place[place >= 0]] * np.int64(len(thread.gaps)) + gap)
        owner, gap = np.divmod(pairs, len(thread.gaps))
        for part in np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(owner)) + 1):
            if len(part):
                yield int(owner[part[0]]), gap[part]


def _later(source: Ints, at_ns: Ints, other: _Thread, node: Ints, when: Ints) -> None:
    """Where the other thread's node is later than what was found so far, it takes its place."""
    later = (node >= 0) & (when > at_ns)
    source[later], at_ns[later] = other.first + node[later], when[later]


def _infer(source: Ints, at_ns: Ints, places: Ints, thread: _Thread, other: _Thread) -> None:
    since, until, lasted = thread.since[places], thread.until[places], thread.lasted[places]
    node, when = other.stopped_by(since, until)
    worked = other.worked_by(until) - other.worked_by(since)
    shortly = until - when <= np.maximum(_LEAST_NS, _RIGHT_BEFORE * lasted)
    # One that works on at once is rather not what was waited for.
    when = np.where(other.goes_on_soon(until), when - _BEFORE_ALL, when)
    fits = (node >= 0) & (when > at_ns[places]) & (thread.waits[places] | shortly & (worked >= _WORKING * lasted))
    source[places[fits]], at_ns[places[fits]] = other.first + node[fits], when[fits]


def _firsts(threads: list[_Thread], roles: Roles) -> Ints:
    """Returns for each thread the node that its first one comes after: whatever another one, which began before it, did
    last; -1 for none. A thread that works comes after one that works, if there is one, and not after logging or pinning
    memory.
    """
    at = np.array([int(thread.at[0]) for thread in threads])
    source, when = np.full(len(threads), -1), np.full(len(threads), -2)
    for counts in (roles.works, np.ones_like(roles.works)):
        asking = (source < 0) & counts
        for i in np.flatnonzero(~roles.autograd & counts).tolist():
            k = np.searchsorted(threads[i].at, at, side="left") - 1
            there = asking & (k >= 0) & (roles.process == roles.process[i]) & (threads[i].at[k] > when)
            source[there], when[there] = threads[i].first + k[there], threads[i].at[k[there]]
    return source
