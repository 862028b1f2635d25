"""The longest paths after the critical path, each through other kernels or operators.

Two paths are the same alternative if the same events have time on them. Edges without an event or of weight 0 make no
difference. So an alternative is a set of events, and its length is the length of the longest path with this set. The
critical path's set is excluded. A path leads from a source of the graph to a sink.

From the end backward, every node keeps its longest continuations, one per set of events. Only edges with slack up to a
limit take part, and the limit grows until all requested alternatives are within it. Runs of such edges without a choice
are contracted to one edge. So the cost depends on the nearly critical part, not on the graph's size. Sets are compared
by the XOR of random 64-bit numbers, one per event.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.longest.reach import FAR, Reach, reach
from pipelines.critical_path.longest.slack import AttributedGraph

# A continuation from a node: its length, the number of its set, its events that may recur, its runs as a linked list.
Way = tuple[int, int, frozenset[int], Any]
_LENGTH = itemgetter(0)
_MANY = 32


@dataclass(frozen=True)
class Alternative:
    """An alternative path.

    `length_ns` is its length, `edges` its edges in order, as indices into the graph's edge arrays. `entered` are the
    event ids that are only on this path, `left` those that are only on the critical path.
    """

    length_ns: int
    edges: Ints
    entered: Ints
    left: Ints


def alternatives(attributed: AttributedGraph, k: int) -> list[Alternative]:
    """Return the k longest alternatives, longest first, or fewer if there are no more. Equal lengths come in any order.

    Raises GraphHasCycle and TypeError as `reach` does.
    """
    graph = attributed.graph
    if k < 1 or not len(graph.src):
        return []
    reached = reach(graph)
    critical = _events(attributed, graph.path())
    slack = np.sort(reached.slack)
    # A path that is shorter by more than the largest slack combines several detours. The last limit includes all paths.
    limits = np.append(slack[np.flatnonzero(np.diff(slack, prepend=-1))], FAR // 4)
    width, index = k + 1, min(k, len(limits) - 1)
    while True:
        near = _Near(attributed, reached, int(limits[index]))
        ways, dropped = near.ways(width)
        # Search one set more than requested, because the critical path's set is among them.
        result = [a for a in (_alternative(attributed, critical, near, way) for way in ways[: k + 1]) if a][:k]
        is_full = len(result) == k
        if is_full and (dropped is None or dropped <= result[-1].length_ns):
            return result
        if dropped is not None:
            width *= 2
        elif index < len(limits) - 1:
            index = min(2 * index + 1, len(limits) - 1)
        else:
            return result


def _events(attributed: AttributedGraph, edges: Ints) -> npt.NDArray[np.bool_]:
    """Return whether each event has time on a path, by event id."""
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
    """The edges of slack up to a limit, in runs. They contain every path that is shorter by at most the limit."""

    def __init__(self, attributed: AttributedGraph, reach: Reach, limit: int) -> None:
        self._reach, self._m = reach, len(attributed.graph.src)
        self._least = reach.length - limit
        chains = reach.chains
        # The path's chains come first and in order, so that they are contracted to runs again.
        aside = reach.slack <= limit
        aside[reach.path] = False
        other_chains = np.flatnonzero(aside)
        self._chain = np.concatenate(
            (reach.path, other_chains[np.argsort(reach.place[chains.src[other_chains]], kind="stable")])
        )
        graph = ArrayGraph.from_edges(chains.src[self._chain], chains.dst[self._chain], chains.weight[self._chain])
        self._runs = graph.chains
        node = graph.node_ids[self._runs.node]  # indices in the chains' nodes
        self._place, self._ahead = reach.place[node].tolist(), reach.ahead[node].tolist()
        self._name(attributed)

    def _name(self, attributed: AttributedGraph) -> None:
        """Compute the contribution of each run to a set of events.

        The contribution consists of one number for the events that occur in no other run, and of the events that also
        occur in other runs.
        """
        run_of = np.repeat(np.arange(len(self._runs.first)), self._runs.size)
        edge, run = self._reach.chains.edges(self._chain), np.repeat(run_of, self._reach.chains.size[self._chain])
        run, edge = run[edge < self._m], edge[edge < self._m]
        named = (attributed.event[edge] >= 0) & (attributed.graph.weight[edge] != 0)
        run, ids = run[named], attributed.event[edge[named]]
        order = np.lexsort((ids, run))
        order = order[(np.diff(run[order], prepend=-1) != 0) | (np.diff(ids[order], prepend=-1) != 0)]
        run, ids = run[order], ids[order]
        event_id, event = np.unique(ids, return_inverse=True)
        number = np.random.default_rng(5).integers(0, 2**63 - 1, len(event_id))
        shared = np.bincount(event, minlength=len(event_id))[event] > 1
        own_numbers = np.zeros(len(self._runs.first), dtype=np.int64)
        np.bitwise_xor.at(own_numbers, run[~shared], number[event[~shared]])
        opens = np.full(len(event_id), FAR)
        np.minimum.at(opens, event, np.array(self._place)[self._runs.src[run]])
        self._own: list[int] = own_numbers.tolist()
        self._number: list[int] = number.tolist()
        self._opens: list[int] = opens.tolist()
        self._shared: dict[int, list[int]] = {}
        for r, e in zip(run[shared].tolist(), event[shared].tolist(), strict=True):
            self._shared.setdefault(r, []).append(e)

    def ways(self, width: int) -> tuple[list[Way], int | None]:
        """Return the longest paths through the graph, longest first, all with different sets, at most `width` per node.

        Also returns the largest length of a path that the limit may have dropped, or None if it dropped no path.
        """
        runs, generation = self._runs, np.array(self._place)
        order = np.lexsort((runs.src, -generation[runs.src]))
        ways_from: list[list[Way]] = [[] for _ in self._place]
        ways_from[int(generation.argmax())] = [(0, 0, frozenset(), None)]
        dropped, node, longest = None, -1, {}
        columns = (order, runs.src[order], runs.dst[order], runs.weight[order])
        for run, src, dst, weight in zip(*(column.tolist() for column in columns), strict=True):
            if src != node:
                dropped = self._keep(ways_from, node, longest, width, dropped)
                node, longest = src, {}
            min_length = self._least - self._ahead[src] - weight
            for way in ways_from[dst]:
                if way[0] >= min_length:
                    longer = self._before(run, src, weight, way)
                    other = longest.get(longer[1])
                    if other is None or other[0] < longer[0]:
                        longest[longer[1]] = longer
        dropped = self._keep(ways_from, node, longest, width, dropped)
        return ways_from[node], dropped  # the loop ends with the node before all sources

    def _before(self, run: int, src: int, weight: int, way: Way) -> Way:
        """Prepend a run of edges to the continuation `way`, and return the result."""
        length, number, again, following = way
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
        return length + weight, number, again, (run, following)

    def _keep(
        self, ways_from: list[list[Way]], node: int, longest: dict[int, Way], width: int, dropped: int | None
    ) -> int | None:
        """Keep the `width` longest continuations of a node, and return the largest length of a path dropped so far."""
        if node < 0:
            return dropped
        best = nlargest(width + 1, longest.values(), key=_LENGTH)
        ways_from[node] = best[:width]
        if len(best) <= width:
            return dropped
        lost = self._ahead[node] + best[width][0]
        return lost if dropped is None else max(dropped, lost)

    def edges(self, way: Way) -> Ints:
        """Return the edges of a continuation, as indices into the graph's edge arrays."""
        runs, following = [], way[3]
        while following is not None:
            run, following = following
            runs.append(run)
        edge = self._reach.chains.edges(self._chain[self._runs.edges(np.array(runs, dtype=np.int64))])
        return edge[edge < self._m]
