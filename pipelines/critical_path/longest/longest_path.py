"""The longest path of a graph held as arrays: exactly networkx's answer, including ties.

`networkx.dag_longest_path` is the definition: nodes are visited in the order of `topological_generations`; a node's
distance is the first maximum over its predecessors in insertion order, or 0 and a new start if that is negative; the
path ends at the first visited node with the greatest distance.

Most nodes of a trace lie on a chain: one edge in, one edge out. Chains whose edges were inserted consecutively are
contracted to one edge with numpy. Most remaining nodes still have one edge in and so no choice: they form a tree below
a node that has several, and numpy sums up the way from there. Only those few are swept in Python.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints, Nodes


@dataclass(frozen=True)
class Chains:
    """A graph whose edges are chains of edges `first` … `last` (indices in the edge arrays) of the original.

    `node` (k,) are the original indices of the remaining nodes; `src`, `dst` (c,) index into it.
    """

    node: Ints
    src: Nodes
    dst: Nodes
    weight: Ints
    first: Nodes
    last: Nodes


def longest_path_edges(graph: ArrayGraph) -> tuple[Ints, int | None]:
    """Returns the edges of the longest path, in order, as indices in the graph's edge arrays, and the node it ends at
    (or None).

    The sums of the weights fit 64 bits. Raises GraphHasCycle. Cost: a few numpy passes over the edges (about 60 bytes
    per edge), then one Python step per edge between the remaining nodes.
    """
    if not len(graph.src):
        return np.arange(0), 0 if len(graph) else None
    chains = contract(graph)
    found = chains_path(graph, chains, lambda first, past: graph.weight[first:past])
    if found is None:  # visit in networkx's own order
        chains = _uncontracted(graph)
        distance, order = _sweep(graph, chains, by_generation=True)
        best = distance.max()
        last = next(i for i in order if distance[i] == best)
        return _walk_back(chains, distance, last), last
    path, node = found
    return path, int(graph.dst[path[-1]]) if len(path) else int(chains.node[node])


def chains_path(graph: ArrayGraph, chains: Chains, weights: Callable[[int, int], Ints]) -> tuple[Ints, int] | None:
    """Returns the edges of the longest path, in order, and its last node among those of `chains` (-1: inside a chain); None for
    a tie that generations do not break. `weights(first, past)` are those of edges within a chain. Raises GraphHasCycle.
    """
    distance = _sweep(graph, chains)[0] if (chains.weight < 0).any() else forest_distances(graph, chains)
    ends = _ends(chains, distance, weights)
    if len(ends) > 1:
        ends = _earliest(graph, chains, ends)
    if len(ends) > 1:
        return None
    node, chain, edge = ends[0]
    if chain is None:
        return _walk_back(chains, distance, node), node
    path = _walk_back(chains, distance, int(chains.src[chain]))
    return np.append(path, np.arange(chains.first[chain], edge + 1)), -1


def _uncontracted(graph: ArrayGraph) -> Chains:
    places = np.arange(len(graph.src))
    src, dst = (np.asarray(ends, dtype=np.int64) for ends in (graph.src, graph.dst))
    return Chains(np.arange(len(graph)), src, dst, graph.weight, places, places)


def contract(graph: ArrayGraph, stay: Nodes | None = None) -> Chains:
    """Returns the graph with each chain of consecutively inserted edges as one edge. The chains hold all edges, in order. No chain
    runs through a node of `stay`, or through an end of a negative edge.
    """
    n, src, dst, weight = len(graph), graph.src, graph.dst, graph.weight
    # One count at a time: of a long trace's path, this is where memory is fullest.
    count = np.bincount(src, minlength=n)
    inside, kept = count == 1, count == 0
    del count
    count = np.bincount(dst, minlength=n)
    inside &= count == 1
    kept &= count == 0
    del count
    backwards = weight < 0  # a path may start at such an edge, so its ends stay nodes
    inside[src[backwards]] = False
    inside[dst[backwards]] = False
    if stay is not None:
        inside[stay] = False
    continues = np.zeros(len(src), dtype=bool)
    continues[1:] = (dst[:-1] == src[1:]) & inside[src[1:]]
    first = np.flatnonzero(~continues).astype(src.dtype)
    last = np.append(first[1:] - 1, np.array([len(src) - 1], dtype=src.dtype))
    total = np.zeros(len(weight) + 1, dtype=np.int64)
    np.cumsum(weight, out=total[1:])
    length = total[last + 1] - total[first]
    del total, inside, continues
    kept[src[first]] = True
    kept[dst[last]] = True
    place = np.cumsum(kept, dtype=src.dtype) - 1
    return Chains(np.flatnonzero(kept), place[src[first]], place[dst[last]], length, first, last)


def _cycle(graph: ArrayGraph, nodes: Ints) -> Exception:
    from pipelines.critical_path.graph.cycle import GraphHasCycle

    return GraphHasCycle(graph.node_ids[nodes].tolist())


def _compact(values: np.ndarray) -> array:
    """Eight bytes per item and fast to index from Python; a list takes 32 bytes more per item, and numpy is slow to
    index.
    """
    out = array("q")
    out.frombytes(np.ascontiguousarray(values, dtype="i8").tobytes())
    return out


def forest_distances(graph: ArrayGraph, chains: Chains) -> Ints:
    """Returns the distance of every node if no weight is negative: only nodes with several edges in are visited one by
    one.
    """
    count = np.bincount(chains.dst, minlength=len(chains.node)).astype(chains.dst.dtype)
    root, length = _trees(graph, chains, count)
    place = np.cumsum(count != 1) - 1
    joins = np.flatnonzero(count[chains.dst] > 1)
    src, dst = chains.src[joins], chains.dst[joins]
    between = Chains(
        chains.node[count != 1], place[root[src]], place[dst], length[src] + chains.weight[joins], joins, joins
    )
    del src, dst, joins, count
    return _sweep(graph, between)[0][place[root]] + length


def _trees(graph: ArrayGraph, chains: Chains, count: Nodes) -> tuple[Nodes, Ints]:
    """Returns for each node the next node above it that does not have exactly one edge in, and the weight of the way
    from there.

    Every step doubles the distance summed up. Raises GraphHasCycle.
    """
    n = len(count)
    root, length = np.arange(n, dtype=chains.src.dtype), np.zeros(n, dtype=np.int64)
    only = np.flatnonzero(count[chains.dst] == 1)
    child = chains.dst[only]
    root[child], length[child] = chains.src[only], chains.weight[only]
    for _ in range(64):
        child = child[count[root[child]] == 1]
        if not len(child):
            return root, length
        above = root[child]
        length[child] += length[above]
        root[child] = root[above]
    raise _cycle(graph, chains.node[child[:10]])


def _sweep(graph: ArrayGraph, chains: Chains, *, by_generation: bool = False) -> tuple[Ints, list[int]]:
    """Returns the distance of every node, visited after all its predecessors, depth first or generation by generation.

    The list is the order of visits by generation. Raises GraphHasCycle.
    """
    n = len(chains.node)
    by_source = np.argsort(chains.src, kind="stable")
    # Only the visiting order within a generation depends on the order of a node's edges, and in that case nothing is
    # contracted.
    if by_generation and graph.out_order is not None:
        by_source = graph.out_order[np.argsort(graph.src[graph.out_order], kind="stable")]
    first_edge = _compact(np.concatenate(([0], np.cumsum(np.bincount(chains.src, minlength=n)))))
    dst, weight = _compact(chains.dst[by_source]), _compact(chains.weight[by_source])
    del by_source
    count = np.bincount(chains.dst, minlength=n)
    ready = np.flatnonzero(count == 0).tolist()
    waits_for = _compact(count)
    distance = array("q", [-(2**63)]) * n  # unknown
    visited = 0
    while visited < len(ready) if by_generation else ready:
        node = ready[visited] if by_generation else ready.pop()
        visited += 1
        reached = distance[node]
        if reached < 0:  # a source, or every way to it has negative weight
            reached = distance[node] = 0
        for i in range(first_edge[node], first_edge[node + 1]):
            target = dst[i]
            length = reached + weight[i]
            if length > distance[target]:
                distance[target] = length
            waits = waits_for[target] - 1
            if waits:
                waits_for[target] = waits
            else:
                waits_for[target] = 0
                ready.append(target)
    if visited < n:
        stuck = np.flatnonzero(np.frombuffer(waits_for, dtype="i8") > 0)[:10]
        raise _cycle(graph, chains.node[stuck])
    return np.frombuffer(distance, dtype="i8"), ready


def _ends(chains: Chains, distance: Ints, weights: Callable[[int, int], Ints]) -> list[tuple[int, int | None, int]]:
    """Returns where the greatest distance is first reached on every way there: (node, None, 0), or inside a chain (-1,
    chain, edge that ends at it).
    """
    best = distance.max()
    far = distance == best
    # Later on the same way: after a node of equal distance, or after the position inside a chain.
    later = far[chains.dst] & far[chains.src]
    inside: list[tuple[int, int | None, int]] = []
    longer = (chains.last > chains.first) & ~far[chains.src]
    for chain in np.flatnonzero(longer & (distance[chains.src] + chains.weight == best)).tolist():
        first, last = int(chains.first[chain]), int(chains.last[chain])
        within = np.flatnonzero(np.cumsum(weights(first, last)) + distance[chains.src[chain]] == best)
        if len(within):
            inside.append((-1, chain, first + int(within[0])))
            later[chain] = True
    far[chains.dst[later]] = False
    return [*((int(node), None, 0) for node in np.flatnonzero(far)), *inside]


def generations(graph: ArrayGraph, chains: Chains) -> Ints:
    """Returns the generation of every node: the longest way there, counted in edges of the graph. Raises GraphHasCycle."""
    return forest_distances(graph, replace(chains, weight=chains.last - chains.first + 1))


def incoming(chains: Chains, distance: Ints) -> Ints:
    """Returns for each node the first of its chains that gives its distance, as networkx chooses; -1 for a source."""
    fits = np.flatnonzero(distance[chains.src] + chains.weight == distance[chains.dst])[::-1]
    via = np.full(len(distance), -1, dtype=np.int64)
    via[chains.dst[fits]] = fits  # later writes win: written backward, the first stays
    return via


def _earliest(graph: ArrayGraph, chains: Chains, ends: list) -> list[tuple[int, int | None, int]]:
    """Returns those of the ends that lie in the earliest generation."""
    generation = generations(graph, chains)
    found = [
        int(generation[node] if chain is None else generation[chains.src[chain]] + edge - chains.first[chain] + 1)
        for node, chain, edge in ends
    ]
    return [end for end, at in zip(ends, found, strict=True) if at == min(found)]


def _walk_back(chains: Chains, distance: Ints, node: int) -> Ints:
    """Returns the edges from the path's start to a node, as indices in the graph's edge arrays."""
    via = incoming(chains, distance)
    before, taken = _compact(via[chains.src]), array("q")
    edge = int(via[node])
    while edge >= 0:
        taken.append(edge)
        edge = before[edge]
    chain = np.frombuffer(taken, dtype="i8")[::-1]
    size = chains.last[chain] - chains.first[chain] + 1
    ahead = np.concatenate(([0], np.cumsum(size)[:-1])) if len(size) else size
    edges = np.repeat(chains.first[chain].astype(np.int64) - ahead, size)
    edges += np.arange(len(edges))
    return edges
