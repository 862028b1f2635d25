"""The longest path of a graph held as arrays, with networkx's answer to the node, ties included.

`networkx.dag_longest_path` is the definition: nodes are visited in the order of `topological_generations`; a node's
distance is the first maximum over its predecessors in insertion order, or 0 and a new beginning where that is negative;
the path ends at the first visited node with the greatest distance.

Most nodes of a trace lie on a chain: one edge in, one edge out. Chains whose edges were inserted one after the other
are contracted to one edge with numpy. Of what is left most nodes still have one edge in, so nothing to choose: they hang
in a tree below a node that has several, and numpy sums up the way from there. Only those few are swept in Python.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph import ArrayGraph, GraphHasCycle, Ints


@dataclass(frozen=True)
class Chains:
    """A graph whose edges are chains of edges `first` … `last` (places in the edge arrays) of the original.

    `node` (k,) are the original places of the nodes that are left; `src`, `dst` (c,) index into it.
    """

    node: Ints
    src: Ints
    dst: Ints
    weight: npt.NDArray
    first: Ints
    last: Ints


@dataclass(frozen=True)
class Sweep:
    """What a sweep found: for each node its distance, generation and chosen incoming chain (-1 for a beginning)."""

    distance: npt.NDArray
    generation: Ints
    via: array
    order: list[int] | None


def longest_path_edges(graph: ArrayGraph) -> tuple[Ints, int | None]:
    """The edges of the longest path, in order, as places in the graph's edge arrays, and the node it ends at (or None).

    The weights are whole numbers whose sums fit 64 bits, or finite doubles. Raises GraphHasCycle. Cost: a few numpy passes over the edges (about 60 bytes an edge), then one Python step for each
    edge and node that is not inside a chain.
    """
    if not len(graph.src):
        return np.arange(0), 0 if len(graph) else None
    # Sums of doubles depend on their order, so only whole numbers are contracted.
    chains = _uncontracted(graph) if graph.weight.dtype.kind == "f" else _contract(graph)
    plain = chains.weight.dtype.kind != "f" and not (chains.weight < 0).any()
    found = _sweep_forest(graph, chains) if plain else _sweep(graph, chains, by_generation=False)
    ends = _ends(graph, chains, found)
    if len(ends) > 1:  # a tie that generations do not break: visit in networkx's own order
        chains = _uncontracted(graph)
        found = _sweep(graph, chains, by_generation=True)
        best = found.distance.max()
        assert found.order is not None
        last = next(i for i in found.order if found.distance[i] == best)
        return _walk_back(chains, found.via, last), last
    node, chain, edge = ends[0]
    if chain is None:
        return _walk_back(chains, found.via, node), int(chains.node[node])
    path = _walk_back(chains, found.via, int(chains.src[chain]))
    return np.append(path, np.arange(chains.first[chain], edge + 1)), int(graph.dst[edge])


def _uncontracted(graph: ArrayGraph) -> Chains:
    places = np.arange(len(graph.src))
    return Chains(np.arange(len(graph)), graph.src, graph.dst, graph.weight, places, places)


def _contract(graph: ArrayGraph) -> Chains:
    n, src, dst, weight = len(graph), graph.src, graph.dst, graph.weight
    out, into = np.bincount(src, minlength=n), np.bincount(dst, minlength=n)
    inside = (out == 1) & (into == 1)
    kept = (out == 0) & (into == 0)
    del out, into
    backwards = weight < 0  # a path may begin anew at such an edge, so its ends stay nodes
    inside[src[backwards]] = False
    inside[dst[backwards]] = False
    continues = np.zeros(len(src), dtype=bool)
    continues[1:] = (dst[:-1] == src[1:]) & inside[src[1:]]
    first = np.flatnonzero(~continues)
    last = np.append(first[1:], len(src)) - 1
    total = np.concatenate(([0], np.cumsum(weight)))
    kept[src[first]] = True
    kept[dst[last]] = True
    place = np.cumsum(kept) - 1
    return Chains(
        np.flatnonzero(kept), place[src[first]], place[dst[last]], total[last + 1] - total[first], first, last
    )


def _compact(values: np.ndarray) -> array:
    """Eight bytes an item and quick to index from Python, which a list (32 bytes more an item) or numpy is not."""
    kind = "d" if values.dtype.kind == "f" else "q"
    out = array(kind)
    out.frombytes(np.ascontiguousarray(values, dtype="f8" if kind == "d" else "i8").tobytes())
    return out


def _sweep_forest(graph: ArrayGraph, chains: Chains) -> Sweep:
    """As `_sweep`, where no weight is negative: only nodes with several edges in are visited one by one."""
    n = len(chains.node)
    count = np.bincount(chains.dst, minlength=n)
    root, length, hops = _trees(graph, chains, count)
    keeps = np.flatnonzero(count != 1)
    place = np.cumsum(count != 1) - 1
    joins = np.flatnonzero(count[chains.dst] > 1)
    src, dst = chains.src[joins], chains.dst[joins]
    between = Chains(
        chains.node[keeps],
        place[root[src]],
        place[dst],
        length[src] + chains.weight[joins],
        np.zeros(len(joins), dtype=np.int64),
        hops[src] + (chains.last - chains.first)[joins],  # `_sweep` adds 1 to the difference
    )
    found = _sweep(graph, between, by_generation=False)
    via = np.full(n, -1, dtype=np.int64)
    chosen = np.frombuffer(found.via, dtype="i8")
    via[keeps] = np.where(chosen >= 0, joins[chosen], -1) if len(joins) else -1
    alone = np.flatnonzero(count[chains.dst] == 1)
    via[chains.dst[alone]] = alone
    return Sweep(found.distance[place[root]] + length, found.generation[place[root]] + hops, _compact(via), None)


def _trees(graph: ArrayGraph, chains: Chains, count: Ints) -> tuple[Ints, Ints, Ints]:
    """For each node the next node above it that has not exactly one edge in, and the weight and edges on the way.

    Every step doubles the way that is summed up. Raises GraphHasCycle.
    """
    n = len(count)
    root, length, hops = np.arange(n), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    only = np.flatnonzero(count[chains.dst] == 1)
    child = chains.dst[only]
    root[child], length[child], hops[child] = (
        chains.src[only],
        chains.weight[only],
        (chains.last - chains.first + 1)[only],
    )
    for _ in range(64):
        child = child[count[root[child]] == 1]
        if not len(child):
            return root, length, hops
        above = root[child]
        length[child] += length[above]
        hops[child] += hops[above]
        root[child] = root[above]
    raise GraphHasCycle(graph.node_ids[chains.node[child[:10]]].tolist())


def _sweep(graph: ArrayGraph, chains: Chains, *, by_generation: bool) -> Sweep:
    """Visit every node after all its predecessors, generation by generation or depth first."""
    n = len(chains.node)
    # Only the order of visits within a generation depends on the order of a node's edges, and then nothing is contracted.
    by_source = np.argsort(chains.src, kind="stable")
    if by_generation and graph.out_order is not None:
        by_source = graph.out_order[np.argsort(graph.src[graph.out_order], kind="stable")]
    first_edge = _compact(np.concatenate(([0], np.cumsum(np.bincount(chains.src, minlength=n)))))
    dst, weight, place = _compact(chains.dst[by_source]), _compact(chains.weight[by_source]), _compact(by_source)
    hops = _compact((chains.last - chains.first + 1)[by_source])
    count = np.bincount(chains.dst, minlength=n)
    ready = np.flatnonzero(count == 0).tolist()
    waits_for, generation, via = _compact(count), array("q", [0]) * n, array("q", [-1]) * n
    distance = array(weight.typecode, [0]) * n
    visited = 0
    while visited < len(ready) if by_generation else ready:
        node = ready[visited] if by_generation else ready.pop()
        visited += 1
        reached = distance[node]
        if reached < 0:
            reached = distance[node] = 0
            via[node] = -1
        for i in range(first_edge[node], first_edge[node + 1]):
            target = dst[i]
            length = reached + weight[i]
            known = via[target]
            if known < 0 or length > distance[target] or (length == distance[target] and place[i] < known):
                distance[target] = length
                via[target] = place[i]
            if generation[node] + hops[i] > generation[target]:
                generation[target] = generation[node] + hops[i]
            waits_for[target] -= 1
            if not waits_for[target]:
                ready.append(target)
    if visited < n:
        stuck = np.flatnonzero(np.frombuffer(waits_for, dtype="i8") > 0)[:10]
        raise GraphHasCycle(graph.node_ids[chains.node[stuck]].tolist())
    kind = "f8" if distance.typecode == "d" else "i8"
    order = ready if by_generation else None
    return Sweep(np.frombuffer(distance, dtype=kind), np.frombuffer(generation, dtype="i8"), via, order)


def _ends(graph: ArrayGraph, chains: Chains, found: Sweep) -> list[tuple[int, int | None, int]]:
    """The nodes of the earliest generation among those with the greatest distance: (node, None, 0), or inside a
    chain (-1, chain, edge that ends at it)."""
    best = found.distance.max()
    ends: list[tuple[int, int, int | None, int]] = [
        (int(found.generation[node]), int(node), None, 0) for node in np.flatnonzero(found.distance == best)
    ]
    longer = chains.last > chains.first
    for chain in np.flatnonzero(longer & (found.distance[chains.src] + chains.weight == best)):
        first, last = int(chains.first[chain]), int(chains.last[chain])
        reached = np.cumsum(graph.weight[first:last]) + found.distance[chains.src[chain]]
        within = np.flatnonzero(reached == best)
        if len(within):
            edge = first + int(within[0])
            ends.append((int(found.generation[chains.src[chain]]) + edge - first + 1, -1, int(chain), edge))
    earliest = min(end[0] for end in ends)
    return [end[1:] for end in ends if end[0] == earliest]


def _walk_back(chains: Chains, via: array, node: int) -> Ints:
    """The edges from the beginning of the path to a node, as places in the graph's edge arrays."""
    source, taken = _compact(chains.src), array("q")
    while via[node] >= 0:
        taken.append(via[node])
        node = source[via[node]]
    chain = np.frombuffer(taken, dtype="i8")[::-1]
    size = chains.last[chain] - chains.first[chain] + 1
    before = np.concatenate(([0], np.cumsum(size)[:-1])) if len(size) else size
    return np.repeat(chains.first[chain] - before, size) + np.arange(size.sum())
