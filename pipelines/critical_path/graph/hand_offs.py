"""Where a host thread went on because another one had done its work: autograd's threads, and waits told by names and times.

The autograd engine's threads begin when the thread that called backward stops, and that one goes on when they end; names
and arrows say which threads these are. Otherwise a thread waited for another one if it was outside operators while the
other worked and then stopped right before it went on; such a hand-off is inferred. A thread that only asks whether GPU work
has ended takes no part, and neither does work that goes on: a coincidence of times alone is no hand-off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.critical_path.graph.host_nodes import HostNodes
from pipelines.critical_path.graph.stack_order import Flags, Ints

SHORT_NS = 100_000
"""A hand-off takes no longer; what a thread does after it, until its next operator, is a gap of its own."""
_LEAST_NS = 20_000  # shorter gaps need no other thread to explain them
_RIGHT_BEFORE = 0.1  # of the gap: the other thread stops that shortly before its end, or within _LEAST_NS
_WORKING = 0.5  # of the gap: the other thread works for that long


@dataclass(frozen=True)
class Roles:
    """What is known of each thread of a window, arrays (t,): as in `_thread_roles`."""

    process: Ints
    works: Flags
    autograd: Flags
    calls: Flags


@dataclass(frozen=True)
class HandOffs:
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

    def last_before(self, since: Ints, until: Ints) -> tuple[Ints, Ints]:
        """Returns the last node (index among its own) outside operators within the gaps of another thread, -1 for none,
        and when that was.
        """
        k = np.searchsorted(self.at, until, side="left") - 1
        at = np.append(self.at, -2)[k]
        there = (k >= 0) & (at > since) & (np.append(self.n_open, 1)[k] == 0)
        return np.where(there, k, -1), np.where(there, at, -2)


def hand_offs(nodes: HostNodes, bounds: list[tuple[int, int]], roles: Roles) -> HandOffs:
    """Returns the hand-offs between the threads of one window; `bounds`: first and past the last node of each."""
    threads = [_Thread(nodes, first, past) for first, past in bounds]
    to: list[Ints] = []
    of: list[Ints] = []
    inferred: list[Flags] = []
    calling = roles.calls.any()
    for number, thread in enumerate(threads):
        others = [i for i in range(len(threads)) if i != number and roles.process[i] == roles.process[number]]
        if not others or not len(thread.gaps):
            continue
        source, at_ns = np.full(len(thread.gaps), -1), np.full(len(thread.gaps), -2)
        told = np.zeros(len(thread.gaps), dtype=bool)
        callers = [i for i in others if not roles.autograd[i] and roles.works[i] and (roles.calls[i] or not calling)]
        engines = [i for i in others if roles.autograd[i]]
        if roles.autograd[number]:
            for i in callers:
                _later(source, at_ns, threads[i], *threads[i].last_before(thread.since, thread.until))
        elif roles.works[number] and (roles.calls[number] or not calling):
            for i in engines:
                _later(source, at_ns, threads[i], *threads[i].stopped_by(thread.since, thread.until))
        told = source >= 0
        hinted = {*callers} if roles.autograd[number] else {*engines}
        for i in others:
            if i not in hinted:
                _infer(source, at_ns, told, thread, threads[i])
        _first(source, at_ns, thread, [threads[i] for i in others if not roles.autograd[i]])
        found = np.flatnonzero(source >= 0)
        to.append(thread.first + thread.gaps[found])
        of.append(source[found])
        inferred.append(~told[found])
    if not to:
        nothing = np.zeros(0, dtype=np.int64)
        return HandOffs(nothing, nothing, nothing.astype(bool))
    return HandOffs(np.concatenate(to), np.concatenate(of), np.concatenate(inferred))


def _later(source: Ints, at_ns: Ints, other: _Thread, node: Ints, when: Ints) -> None:
    """Where the other thread's node is later than what was found so far, it takes its place."""
    later = (node >= 0) & (when > at_ns)
    source[later], at_ns[later] = other.first + node[later], when[later]


def _infer(source: Ints, at_ns: Ints, told: Flags, thread: _Thread, other: _Thread) -> None:
    node, when = other.stopped_by(thread.since, thread.until)
    length = thread.until - thread.since
    in_window = thread.since >= 0
    asked = ~told & (node >= 0) & in_window & (thread.waits | (length >= _LEAST_NS))
    places = np.flatnonzero(asked)
    if not len(places):
        return
    worked = other.worked_by(thread.until[places]) - other.worked_by(thread.since[places])
    shortly = thread.until[places] - when[places] <= np.maximum(_LEAST_NS, _RIGHT_BEFORE * length[places])
    fits = thread.waits[places] | shortly & (worked >= _WORKING * length[places])
    asked[places[~fits]] = False
    _later(source, at_ns, other, np.where(asked, node, -1), when)


def _first(source: Ints, at_ns: Ints, thread: _Thread, others: list[_Thread]) -> None:
    """A thread's first node comes after whatever another one, which began before it, did last."""
    if thread.since[0] >= 0 or source[0] >= 0:
        return
    at = int(thread.until[0])
    for other in others:
        k = int(np.searchsorted(other.at, at, side="left")) - 1
        if k >= 0 and other.at[k] > at_ns[0]:
            source[0], at_ns[0] = other.first + k, other.at[k]
