"""Finds the longest paths besides the critical one, each through other kernels or operators.

Two paths are the same alternative if the same events have time on them: edges without an event or of weight 0 make no
difference. So an alternative is a set of events, its length is that of the longest path with this set, and the critical
path's own set is excluded. A path leads from a source of the graph to a sink.

From the end backward, every node keeps its longest continuations, one per set of events. Only edges with slack up to a
limit take part, and the limit grows until all requested alternatives are within it; runs of such edges without a choice
are contracted to one edge. So the cost depends on what is nearly critical, not on the graph's size. Sets are compared
by a sum of random 64-bit numbers, one per event.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints
from pipelines.critical_path.longest.reach import FAR, Reach, reach
from pipelines.critical_path.longest.slack import AttributedGraph

# A continuation from a node: its length, the number of its set, the numbers of its events that may recur, its runs as a
# linked list.
Way = tuple[int, int, frozenset[int], Any]
_LENGTH = itemgetter(0)
_MANY = 32


@dataclass(frozen=True)
class Alternative:
    """A path: its length, ns, its edges (indices in the graph's edge arrays, in order), and how its events differ from
    those of the critical path: `entered` are only on this one, `left` only on the critical one (event ids).
    """

    length_ns: int
    edges: Ints
    entered: Ints
    left: Ints


def alternatives(attributed: AttributedGraph, k: int) -> list[Alternative]:
    """Returns the k longest alternatives, longest first; fewer if there are no more. Equal lengths come in any order.

    Raises GraphHasCycle and TypeError as `reach` does.
    """
    graph = attributed.graph
    if k < 1 or not len(graph.src):
        return []
    found = reach(graph)
    critical = _events(attributed, graph.path())
    slack = np.sort(found.slack)
    # Beyond the largest slack of an edge, the remaining paths are shorter for several reasons at once.
    limits = np.append(slack[np.flatnonzero(np.diff(slack, prepend=-1))], FAR // 4)
    width, at = k + 1, min(k, len(limits) - 1)
    while True:
        near = _Near(attributed, found, int(limits[at]))
        ways, dropped = near.ways(width)
        # One set more than requested: the critical path's is among them.
        result = [a for a in (_alternative(attributed, critical, near, way) for way in ways[: k + 1]) if a][:k]
        is_full = len(result) == k
        if is_full and (dropped is None or dropped <= result[-1].length_ns):
            return result
        if dropped is not None:
            width *= 2
        elif at < len(limits) - 1:
            at = min(2 * at + 1, len(limits) - 1)
        else:
            return result


def _events(attributed: AttributedGraph, edges: Ints) -> npt.NDArray[np.bool_]:
    """Returns, for each event id, whether the event has time on a path."""
    on_it = np.zeros(int(attributed.event.max()) + 1, dtype=bool)
    event = attributed.event[edges]
    on_it[event[(event >= 0) & (attributed.graph.weight[edges] != 0)]] = True
    return on_it


def _alternative(
    attributed: AttributedGraph, critical: npt.NDArray[np.bool_], near: _Near, way: Way
) -> Alternative | None:
    edges = near.edges(way)
    events = _events(attributed, edges)
    if np.array_equal(events, critical):
        return None
    return Alternative(way[0], edges, np.flatnonzero(events & ~critical), np.flatnonzero(critical & ~events))


class _Near:
    """The edges of slack up to a limit, in runs: they contain every path that is shorter by at most the limit."""

    def __init__(self, attributed: AttributedGraph, found: Reach, limit: int) -> None:
        self._found, self._m = found, len(attributed.graph.src)
        self._least = found.length - limit
        chains = found.chains
        # The path's chains come first and in order, so that they are contracted to runs again.
        aside = found.slack <= limit
        aside[found.path] = False
        others = np.flatnonzero(aside)
        self._chain = np.concatenate((found.path, others[np.argsort(found.place[chains.src[others]], kind="stable")]))
        graph = ArrayGraph.from_edges(chains.src[self._chain], chains.dst[self._chain], chains.weight[self._chain])
        self._runs = graph.chains
        node = graph.node_ids[self._runs.node]  # indices in the chains' nodes
        self._place, self._ahead = found.place[node].tolist(), found.ahead[node].tolist()
        self._name(attributed)

    def _name(self, attributed: AttributedGraph) -> None:
        """What each run adds to a set: one number for the events only it has, and the events that other runs also have."""
        run_of = np.repeat(np.arange(len(self._runs.first)), self._runs.size)
        edge, run = self._found.chains.edges(self._chain), np.repeat(run_of, self._found.chains.size[self._chain])
        run, edge = run[edge < self._m], edge[edge < self._m]
        named = (attributed.event[edge] >= 0) & (attributed.graph.weight[edge] != 0)
        run, of = run[named], attributed.event[edge[named]]
        order = np.lexsort((of, run))
        order = order[(np.diff(run[order], prepend=-1) != 0) | (np.diff(of[order], prepend=-1) != 0)]
        run, of = run[order], of[order]
        event_id, event = np.unique(of, return_inverse=True)
        number = np.random.default_rng(5).integers(0, 2**63 - 1, len(event_id))
        shared = np.bincount(event, minlength=len(event_id))[event] > 1
        own = np.zeros(len(self._runs.first), dtype=np.int64)
        np.bitwise_xor.at(own, run[~shared], number[event[~shared]])
        opens = np.full(len(event_id), FAR)
        np.minimum.at(opens, event, np.array(self._place)[self._runs.src[run]])
        self._own: list[int] = own.tolist()
        self._number: list[int] = number.tolist()
        self._opens: list[int] = opens.tolist()
        self._shared: dict[int, list[int]] = {}
        for r, e in zip(run[shared].tolist(), event[shared].tolist(), strict=True):
            self._shared.setdefault(r, []).append(e)

    def ways(self, width: int) -> tuple[list[Way], int | None]:
        """Returns the longest paths through the graph, longest first, no two with the same set, at most `width` per
        node.

        Also returns the largest length of a path that may have been lost by that limit (None: none was).
        """
        runs, place = self._runs, np.array(self._place)
        order = np.lexsort((runs.src, -place[runs.src]))
        known: list[list[Way]] = [[] for _ in self._place]
        known[int(place.argmax())] = [(0, 0, frozenset(), None)]
        dropped, node, longest = None, -1, {}
        columns = (order, runs.src[order], runs.dst[order], runs.weight[order])
        for run, src, dst, weight in zip(*(column.tolist() for column in columns), strict=True):
            if src != node:
                dropped = self._keep(known, node, longest, width, dropped)
                node, longest = src, {}
            least = self._least - self._ahead[src] - weight
            for way in known[dst]:
                if way[0] >= least:
                    longer = self._before(run, src, weight, way)
                    other = longest.get(longer[1])
                    if other is None or other[0] < longer[0]:
                        longest[longer[1]] = longer
        dropped = self._keep(known, node, longest, width, dropped)
        return known[node], dropped  # the node before all sources comes last

    def _before(self, run: int, src: int, weight: int, way: Way) -> Way:
        """Returns a continuation with a run put before it."""
        length, number, again, rest = way
        number ^= self._own[run]
        shared = self._shared.get(run)
        if shared:
            new = [event for event in shared if event not in again]
            for event in new:
                number ^= self._number[event]
            begins = self._place[src]
            again = again.union(event for event in new if self._opens[event] < begins)
            if len(again) > _MANY:
                again = frozenset(event for event in again if self._opens[event] < begins)
        return length + weight, number, again, (run, rest)

    def _keep(
        self, known: list[list[Way]], node: int, longest: dict[int, Way], width: int, dropped: int | None
    ) -> int | None:
        """Keep the `width` longest continuations of a node; returns the largest length of a path lost so far."""
        if node < 0:
            return dropped
        best = nlargest(width + 1, longest.values(), key=_LENGTH)
        known[node] = best[:width]
        if len(best) <= width:
            return dropped
        lost = self._ahead[node] + best[width][0]
        return lost if dropped is None else max(dropped, lost)

    def edges(self, way: Way) -> Ints:
        """Returns the edges of a continuation, as indices in the graph's edge arrays."""
        taken, rest = [], way[3]
        while rest is not None:
            run, rest = rest
            taken.append(run)
        edge = self._found.chains.edges(self._chain[self._runs.edges(np.array(taken, dtype=np.int64))])
        return edge[edge < self._m]
