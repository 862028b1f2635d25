"""The length of the longest path through every edge of a graph, the basis of slack, drag and alternatives.

The graph gets one node before all its sources and one node after all its sinks. Every path leads from the first to the
second node, and crosses the boundary between two generations on exactly one edge. A longest path may start or end
inside the graph only at an edge of negative weight. Anywhere else, extending the path does not make it shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.critical_path.graph.chains import Chains, Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph

FAR = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Reach:
    """The chains of a graph with both distances, ns.

    Indices from m on in `chains.first` are edges to or from the two added nodes. `ahead`, `behind` (k,) are the longest
    distances to a node and from it. `place` (k,) is the node's generation, which grows along every chain. `length` is
    the length of the longest path. `slack` (c,) is how much shorter the longest path through a chain is. `chain_of`
    (m,) is the chain of an edge. `path` contains the chains of one longest path, in order.
    """

    chains: Chains
    ahead: Ints
    behind: Ints
    place: Ints
    length: int
    slack: Ints
    chain_of: Ints
    path: Ints


def reach(graph: ArrayGraph) -> Reach:
    """Measure a graph with weights in integer nanoseconds and at least one edge.

    Raises GraphHasCycle. The cost is three times that of the longest path.
    """
    closed = _closed(graph)
    chains = closed.chains
    ahead, behind = chains.forward(chains.weight), chains.backward(chains.weight)
    length = int(ahead.max())
    return Reach(
        chains,
        ahead,
        behind,
        chains.forward(chains.size.astype(np.int64)),
        length,
        length - (ahead[chains.src] + chains.weight + behind[chains.dst]),
        np.repeat(np.arange(len(chains.first)), chains.size)[: len(graph.src)],
        chains.walk_back(int(np.searchsorted(chains.node, len(graph) + 1)), chains.weight, ahead),
    )


def _closed(graph: ArrayGraph) -> ArrayGraph:
    """Return the graph with node n before all sources and node n + 1 after all sinks, linked by edges of weight 0."""
    n, backwards = len(graph), graph.weight < 0
    begins = np.bincount(graph.dst, minlength=n) == 0
    ends = np.bincount(graph.src, minlength=n) == 0
    begins[graph.dst[backwards]] = True
    ends[graph.src[backwards]] = True
    first, last = np.flatnonzero(begins), np.flatnonzero(ends)
    return ArrayGraph(
        np.append(graph.node_ids, [-1, -2]),
        np.concatenate((graph.src, np.full(len(first), n), last)),
        np.concatenate((graph.dst, first, np.full(len(last), n + 1))),
        np.concatenate((graph.weight, np.zeros(len(first) + len(last), dtype=np.int64))),
    )


def bypass(reach: Reach) -> Ints:
    """Return how much shorter the longest path without each chain of the path is, ns.

    The value is FAR if there is no such path. A path without the chain crosses the generation after the chain's start
    on another edge, and no path crosses it twice. So the result is the smallest slack among the other chains that cross
    that generation, a minimum over intervals.
    """
    chains, place, on_path = reach.chains, reach.place, np.zeros(len(reach.slack), dtype=bool)
    on_path[reach.path] = True
    cuts = place[chains.src[reach.path]]
    off_path = np.flatnonzero(~on_path)
    first = np.searchsorted(cuts, place[chains.src[off_path]])
    past = np.searchsorted(cuts, place[chains.dst[off_path]])
    crosses = past > first
    return _least_over(first[crosses], past[crosses], reach.slack[off_path[crosses]], len(cuts))


def _least_over(first: Ints, past: Ints, value: Ints, n: int) -> Ints:
    """Return the smallest value of the intervals [first, past) that contain each of n positions.

    An interval is the union of two blocks of the largest power of two that fits. A block passes its smallest value to
    its two halves.
    """
    level = np.frexp((past - first).astype(float))[1] - 1
    smallest = np.full(n, FAR)
    for k in range(int(level.max(initial=-1)), -1, -1):
        half = 1 << k
        halves = smallest.copy()  # each block of twice the size becomes its first half, which starts where it starts
        halves[half:] = np.minimum(halves[half:], smallest[:-half])
        smallest = halves
        these = np.flatnonzero(level == k)
        np.minimum.at(smallest, first[these], value[these])
        np.minimum.at(smallest, past[these] - half, value[these])
    return smallest
