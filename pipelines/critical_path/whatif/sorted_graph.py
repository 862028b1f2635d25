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
    edge_in: Ints


class Forest:
    """The order in which a graph is swept. It is valid for any weights that are negative only where the graph's are.

    Parallel edges are allowed. Raises GraphHasCycle. Cost: about two Python steps per node, once.
    """

    def __init__(self, graph: ArrayGraph) -> None:
        self.graph = graph
        n, src, dst = len(graph), graph.src, graph.dst
        n_in = np.bincount(dst, minlength=n)
        # A path may start anew after a negative edge, so the end of such an edge is also a choice.
        chooses = n_in != 1
        chooses[dst[graph.weight < 0]] = True
        hangs = np.flatnonzero(~chooses[dst])
        parent_edge = np.full(n, -1)
        parent_edge[dst[hangs]] = hangs
        self._tour, self._node = _walk_around(graph, hangs, np.flatnonzero(chooses))
        self._place = np.empty(n, dtype=np.int64)
        self._place[self._node] = np.arange(n)
        self._edge_in = parent_edge[self._node]
        self._tops = np.flatnonzero(chooses[self._node])
        self._tree = np.cumsum(chooses[self._node]) - 1  # the number of the tree of each tour position
        self._enters = np.flatnonzero(self._tour >= 0)
        self._tour_edge = parent_edge[np.where(self._tour >= 0, self._tour, ~self._tour)]
        # A node that follows its parent in the tour is in one run with it: the way back goes run by run.
        parent = np.where(self._edge_in >= 0, src[self._edge_in], -1) if len(src) else self._edge_in
        begins = np.ones(n, dtype=bool)
        begins[1:] = parent[1:] != self._node[:-1]
        self._run = np.maximum.accumulate(np.where(begins, np.arange(n), 0))
        self._sort_choices(np.flatnonzero(chooses[dst]))

    def _sort_choices(self, joins: Ints) -> None:
        """Returns the nodes with a choice, each after all it depends on, and their edges in insertion order."""
        tree_of = self._tree[self._place]
        into, out_of = tree_of[self.graph.dst[joins]], tree_of[self.graph.src[joins]]
        trees = _kahn(len(self._tops), out_of, into)
        if len(trees) < len(self._tops):
            missing = np.setdiff1d(np.arange(len(self._tops)), trees)[:10]
            raise _cycle(self.graph, self._node[self._tops[missing]])
        turn = np.empty(len(trees), dtype=np.int64)
        turn[trees] = np.arange(len(trees))
        order = np.lexsort((joins, turn[into]))
        self._joins = joins[order]
        self._from_tree = out_of[order].tolist()
        ends = np.cumsum(np.bincount(turn[into], minlength=len(trees)))
        self._steps = list(zip(trees.tolist(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True))

    def distances(self, weight: Ints, begin: Ints | None = None) -> Distances:
        """Returns the longest distance of every node under `weight` (m,), ns, one for each edge of the graph.

        With `begin` (n,) the nodes without an edge in start there, and no distance is raised to 0: then distances are
        times.
        """
        around = np.where(self._tour >= 0, weight[self._tour_edge], -weight[self._tour_edge]) if len(weight) else weight
        around[self._tour_edge < 0] = 0
        below_top = np.cumsum(around)[self._enters]
        add = (below_top[self._place[self.graph.src[self._joins]]] + weight[self._joins]).tolist()
        from_tree, chosen = self._from_tree, [-1] * len(self._tops)
        top = [0] * len(self._tops) if begin is None else begin[self._node[self._tops]].tolist()
        for tree, first, past in self._steps:
            if first == past:
                continue
            best, taken = top[from_tree[first]] + add[first], first
            for i in range(first + 1, past):
                reached = top[from_tree[i]] + add[i]
                if reached > best:
                    best, taken = reached, i
            if best >= 0 or begin is not None:
                top[tree], chosen[tree] = best, taken
        edge_in, taken = self._edge_in.copy(), np.array(chosen, dtype=np.int64)
        edge_in[self._tops] = np.where(taken >= 0, self._joins[taken], -1) if len(self._joins) else -1
        at = np.empty(len(self._node), dtype=np.int64)
        at[self._node] = np.array(top, dtype=np.int64)[self._tree] + below_top
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
        return edges[edges >= 0]

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


def _by_source(n: int, src: Nodes, dst: Nodes) -> tuple[list[int], list[int]]:
    """Returns the targets of the edges of each node, in insertion order, and where each node's begin."""
    order = np.argsort(src, kind="stable")
    return dst[order].tolist(), [0, *np.cumsum(np.bincount(src, minlength=n)).tolist()]


def _walk_around(graph: ArrayGraph, hangs: Ints, tops: Ints) -> tuple[Ints, Ints]:
    """Returns a tour of all trees: each node where it is entered, its complement where it is left; then the entered
    ones.
    """
    child, begins = _by_source(len(graph), graph.src[hangs], graph.dst[hangs])
    tour, todo = array("q"), tops[::-1].tolist()
    while todo:
        node = todo.pop()
        tour.append(node)
        if node >= 0:
            todo.append(~node)
            todo.extend(reversed(child[begins[node] : begins[node + 1]]))
    walked = np.frombuffer(tour, dtype="i8") if tour else np.arange(0)
    entered = walked[walked >= 0]
    if len(entered) < len(graph):
        missing = np.setdiff1d(np.arange(len(graph)), entered)[:10]
        raise _cycle(graph, missing)
    return walked, entered


def _kahn(n: int, src: Nodes, dst: Nodes) -> Ints:
    """Returns the nodes, each after all it depends on, in the order of networkx's `topological_sort`; fewer if there is
    a cycle.
    """
    child, begins = _by_source(n, src, dst)
    n_in = np.bincount(dst, minlength=n)
    ready, waits_for, order = deque(np.flatnonzero(n_in == 0).tolist()), n_in.tolist(), array("q")
    while ready:
        node = ready.popleft()
        order.append(node)
        for target in child[begins[node] : begins[node + 1]]:
            waits_for[target] -= 1
            if not waits_for[target]:
                ready.append(target)
    return np.frombuffer(order, dtype="i8") if order else np.arange(0)
