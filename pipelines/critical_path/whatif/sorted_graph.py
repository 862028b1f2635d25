"""A graph sorted once, whose longest path is then found for any weights without sorting it again.

Most nodes have one edge in and so no choice: they form a tree below a node that has several, or none. A walk (Euler
tour) around each tree, kept as an array, turns the weight from the tree's top to each node into one cumulative sum.
Only the few nodes with a choice are visited in Python, in an order that does not depend on weights.

The answer is networkx's, including ties (`networkx.dag_longest_path` 3.x): a node's distance is the first maximum over
its predecessors in insertion order, or 0 and a new start if that is negative; the path ends at the first node of the
greatest distance in the order of `topological_generations`.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints, Nodes


@dataclass(frozen=True)
class Distances:
    """The longest distance of each node, ns; `edge_in` is the edge it is reached by, -1 at a source, in tour order."""

    at: Ints
    edge_in: Nodes


class Forest:
    """The order in which a graph is swept. It is valid for any weights that are negative only where the graph's are.

    Parallel edges are allowed. Raises GraphHasCycle. Cost: about two Python steps per node, once.
    """

    def __init__(self, graph: ArrayGraph) -> None:
        self.graph = graph
        n, src, dst = len(graph), graph.src, graph.dst
        small = _small(2 * max(n, len(src)) + 1)
        # A path may start anew after a negative edge, so the end of such an edge is also a choice.
        chooses = np.bincount(dst, minlength=n) != 1
        chooses[dst[graph.weight < 0]] = True
        hangs = np.flatnonzero(~chooses[dst]).astype(small)
        parent_edge = np.full(n, -1, dtype=small)
        parent_edge[dst[hangs]] = hangs
        tour = _walk_around(graph, hangs, np.flatnonzero(chooses))
        del hangs
        self._entering = tour >= 0
        self._node = tour[self._entering]
        if len(self._node) < n:
            raise _cycle(graph, np.setdiff1d(np.arange(n), self._node.astype(np.int64))[:10])
        np.invert(tour, out=tour, where=~self._entering)
        self._tour_edge = parent_edge[tour]
        del tour
        self._place = np.empty(n, dtype=small)
        self._place[self._node] = np.arange(n, dtype=small)
        self._edge_in = parent_edge[self._node]
        del parent_edge
        self._tops = np.flatnonzero(chooses[self._node]).astype(small)
        self._tree = np.cumsum(chooses[self._node], dtype=small) - 1  # the number of the tree of each tour position
        self._sort_choices(np.flatnonzero(chooses[dst]).astype(small))

    @cached_property
    def _run(self) -> Nodes:
        """Where the run of each tour position begins: a node that follows its parent is in one with it, and the way back goes
        run by run.
        """
        src, n = self.graph.src, len(self._node)
        parent = np.where(self._edge_in >= 0, src[self._edge_in], -1) if len(src) else self._edge_in
        begins = np.ones(n, dtype=bool)
        begins[1:] = parent[1:] != self._node[:-1]
        return np.maximum.accumulate(np.where(begins, np.arange(n), 0))

    def _sort_choices(self, joins: Nodes) -> None:
        """Sorts the nodes with a choice, each after all it depends on, and their edges in insertion order."""
        into, out_of = (self._tree[self._place[ends[joins]]] for ends in (self.graph.dst, self.graph.src))
        trees = _kahn(len(self._tops), out_of, into)
        if len(trees) < len(self._tops):
            missing = np.setdiff1d(np.arange(len(self._tops)), trees)[:10]
            raise _cycle(self.graph, self._node[self._tops[missing]])
        turn = np.empty(len(trees), dtype=joins.dtype)
        turn[trees] = np.arange(len(trees), dtype=joins.dtype)
        into = turn[into]
        order = np.lexsort((joins, into))
        self._joins, self._from_tree = joins[order], _compact(out_of[order])
        size = np.bincount(into, minlength=len(trees))
        ends, chooses = np.cumsum(size), size > 0
        self._steps = [_compact(column[chooses]) for column in (trees, ends - size, ends)]

    def distances(self, weight: Ints, begin: Ints | None = None) -> Distances:
        """Returns the longest distance of every node under `weight` (m,), ns, one for each edge of the graph.

        With `begin` (n,) the nodes without an edge in start there, and no distance is raised to 0: then distances are
        times.
        """
        around = weight[self._tour_edge] if len(weight) else np.zeros(len(self._tour_edge), dtype=np.int64)
        np.negative(around, out=around, where=~self._entering)
        around[self._tour_edge < 0] = 0
        below_top = np.cumsum(around, out=around)[self._entering]
        del around
        add = _compact(below_top[self._place[self.graph.src[self._joins]]] + weight[self._joins])
        from_tree, chosen = self._from_tree, array("q", [-1]) * len(self._tops)
        top = _compact(begin[self._node[self._tops]]) if begin is not None else array("q", [0]) * len(self._tops)
        for tree, first, past in zip(*self._steps, strict=True):
            best, taken = top[from_tree[first]] + add[first], first
            for i in range(first + 1, past):
                reached = top[from_tree[i]] + add[i]
                if reached > best:
                    best, taken = reached, i
            if best >= 0 or begin is not None:
                top[tree], chosen[tree] = best, taken
        del add
        edge_in, taken = self._edge_in.copy(), np.frombuffer(chosen, dtype="i8")
        edge_in[self._tops] = np.where(taken >= 0, self._joins[taken], -1) if len(self._joins) else -1
        below_top += np.frombuffer(top, dtype="i8")[self._tree]
        at = np.empty(len(self._node), dtype=np.int64)
        at[self._node] = below_top
        return Distances(at, edge_in)

    def longest_path(self, found: Distances) -> Ints:
        """Returns the edges of the longest path, in order, as indices in the graph's edge arrays."""
        if not len(self._node):
            return np.arange(0)
        firsts, lasts = [], []
        place = int(self._place[self._end(found.at)])
        while place >= 0:
            first = int(self._run[place])
            firsts.append(first)
            lasts.append(place)
            edge = int(found.edge_in[first])
            place = int(self._place[self.graph.src[edge]]) if edge >= 0 else -1
        first = np.array(firsts[::-1])
        size = np.array(lasts[::-1]) - first + 1
        before = np.cumsum(size) - size
        edges = found.edge_in[np.repeat(first - before, size) + np.arange(size.sum())]
        return edges[edges >= 0].astype(np.int64)

    def _end(self, at: Ints) -> int:
        ends = np.flatnonzero(at == at.max())
        if len(ends) > 1:
            generation = self._generation[ends]
            ends = ends[generation == generation.min()]
        if len(ends) > 1:
            ends = ends[[np.argmin(self._turn[ends])]]
        return int(ends[0])

    @cached_property
    def _generation(self) -> Ints:
        return self.distances(np.ones(len(self.graph.src), dtype=np.int64)).at

    @cached_property
    def _turn(self) -> Ints:
        """Returns when networkx visits each node. Needed only if two nodes of a generation are equally far."""
        turn = np.empty(len(self.graph), dtype=np.int64)
        turn[_kahn(len(self.graph), self.graph.src, self.graph.dst)] = np.arange(len(self.graph))
        return turn


def _cycle(graph: ArrayGraph, nodes: Nodes) -> Exception:
    from pipelines.critical_path.graph.cycle import GraphHasCycle  # imports networkx, which takes its time

    return GraphHasCycle(graph.node_ids[nodes].tolist())


def _small(size: int) -> type[np.int32 | np.int64]:
    return np.int32 if size < 2**31 else np.int64


def _compact(values: np.ndarray) -> array:
    """As many bytes per item as numpy takes: a list takes 32 more, and numpy is slow to index from Python."""
    out = array("i" if values.dtype == np.int32 else "q")
    out.frombytes(np.ascontiguousarray(values).view(np.uint8).data)
    return out


def _by_source(n: int, src: Nodes, dst: Nodes) -> tuple[array, array]:
    """Returns the targets of the edges of each node, in insertion order, and where each node's begin."""
    begins = np.zeros(n + 1, dtype=_small(len(src)))
    np.cumsum(np.bincount(src, minlength=n), out=begins[1:])
    return _compact(dst[np.argsort(src, kind="stable")]), _compact(begins)


def _walk_around(graph: ArrayGraph, hangs: Nodes, tops: Nodes) -> Nodes:
    """Returns a tour of all trees: each node where it is entered, its complement where it is left."""
    child, begins = _by_source(len(graph), graph.src[hangs], graph.dst[hangs])
    kind = "i" if len(graph) < 2**31 else "q"
    tour = array(kind)
    for top in _compact(tops):
        todo = [top]
        while todo:
            node = todo.pop()
            tour.append(node)
            if node >= 0:
                todo.append(~node)
                first, past = begins[node], begins[node + 1]
                if past - first == 1:
                    todo.append(child[first])
                else:
                    todo.extend(reversed(child[first:past]))
    return np.frombuffer(tour, dtype=kind) if tour else np.arange(0)


def _kahn(n: int, src: Nodes, dst: Nodes) -> Ints:
    """Returns the nodes, each after all it depends on, in the order of networkx's `topological_sort`; fewer if there is
    a cycle.
    """
    child, begins = _by_source(n, src, dst)
    n_in = np.bincount(dst, minlength=n)
    ready, waits_for, order = deque(np.flatnonzero(n_in == 0).tolist()), _compact(n_in), array("q")
    while ready:
        node = ready.popleft()
        order.append(node)
        for target in child[begins[node] : begins[node + 1]]:
            waits_for[target] -= 1
            if not waits_for[target]:
                ready.append(target)
    return np.frombuffer(order, dtype="i8") if order else np.arange(0)
