"""A dependency graph stored as arrays, without a Python object per node or edge, and its longest paths.

The graph is built from `critical_path_edges` or from an ordinary `networkx.DiGraph`. networkx uses it through the
backend in `backend.py`, so `networkx.dag_longest_path(graph)` works on it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.chains import Chains, Ints, Nodes, parts_of, small_enough

if TYPE_CHECKING:
    import networkx as nx


def unfeasible() -> type[Exception]:
    """Return networkx's error for a graph with a cycle.

    `except unfeasible()` imports networkx only if an error is raised.
    """
    import networkx as nx

    return nx.NetworkXUnfeasible


def first_edge_wins(profile: str) -> bool:
    """Return whether the smallest edge wins a tie in the graph of a window of this profile.

    Otherwise, the order in which networkx visits nodes decides.
    """
    return profile == "default"


@dataclass(frozen=True, eq=False)
class ArrayGraph:
    """A weighted directed graph.

    `node_ids` (n,) are the nodes, integers. `src` and `dst` (m,) are indices into `node_ids`. The edges are in
    insertion order, because networkx lists the predecessors of a node in this order. `weight` (m,) is the edge
    attribute `weight`, in ns for graphs of traces. Among several longest paths, networkx's order decides, or with
    `first_edge_wins` the smallest edge. `plain` is the networkx graph from which this graph was built, or None. If
    `plain` changes, rebuild this graph.
    """

    node_ids: Nodes
    src: Nodes
    dst: Nodes
    weight: Ints
    first_edge_wins: bool = False
    plain: nx.DiGraph | None = None

    __networkx_backend__ = "tracelake"

    @classmethod
    def from_edges(cls, src: Nodes, dst: Nodes, weight: npt.NDArray, profile: str = "") -> ArrayGraph:
        """Build from edges between node ids, in insertion order.

        Memory is proportional to the range of the ids, which is at most about twice the number of events. `profile` is
        the profile of the graph's window. Raises TypeError if the weights are not integers.
        """
        if len(weight) and weight.dtype.kind != "i":
            raise TypeError(f"the weights are {weight.dtype}; give whole nanoseconds")
        low = int(min(src.min(), dst.min())) if len(src) else 0
        high = int(max(src.max(), dst.max())) if len(src) else -1
        has_edge = np.zeros(high - low + 1, dtype=bool)
        has_edge[src - low] = has_edge[dst - low] = True
        new_index = np.cumsum(has_edge, dtype=small_enough(len(has_edge))) - 1
        ids = (np.flatnonzero(has_edge) + low).astype(src.dtype)
        return cls(
            ids,
            new_index[src - low],
            new_index[dst - low],
            np.asarray(weight, dtype=np.int64),
            first_edge_wins(profile),
        )

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph) -> ArrayGraph:
        """Build from the nodes, the edges and their attribute `weight`.

        Raises NotImplementedError for undirected graphs, for parallel edges, and for nodes or weights that are not
        64-bit integers.
        """
        if not graph.is_directed() or graph.is_multigraph():
            raise NotImplementedError(
                "tracelake supports only directed graphs without parallel edges (networkx.DiGraph)"
            )
        # The mapping node → predecessor → data behind `graph.pred`, without one view object per node.
        pred: Any = graph._pred  # pyright: ignore[reportAttributeAccessIssue]
        nodes = _whole(graph, "nodes")
        weight = _whole(
            (data.get("weight") for predecessors in pred.values() for data in predecessors.values()), "weights"
        )
        index_by_node = {node: i for i, node in enumerate(graph)}
        src = np.fromiter(map(index_by_node.__getitem__, chain.from_iterable(pred.values())), dtype=np.int64)
        dst = np.repeat([index_by_node[node] for node in pred], [len(predecessors) for predecessors in pred.values()])
        return cls(nodes, src, dst.astype(np.int64), weight, plain=graph)

    def to_networkx(self) -> nx.DiGraph:
        """Return the graph as an ordinary `networkx.DiGraph` with the edge attribute `weight`.

        If the graph was built from a networkx graph, returns that graph.
        """
        import networkx as nx

        if self.plain is not None:
            return self.plain
        result, ids = nx.DiGraph(), self.node_ids
        columns = (column.tolist() for column in (ids[self.src], ids[self.dst], self.weight))
        result.add_weighted_edges_from(zip(*columns, strict=True))
        result.add_nodes_from(ids.tolist())  # nodes without an edge
        return result

    @cached_property
    def chains(self) -> Chains:
        """Return the chains of the graph's edges, sorted once for all weights."""
        return Chains([(self.src, self.dst, self.weight)], len(self), self.node_ids)

    def forward(self, weight: npt.NDArray[np.integer], begin: Ints | None = None) -> Ints:
        """Return the longest distance to each node (n,) under `weight` (m,), ns.

        `weight` may be negative only where the graph's own weight is. With `begin` (n,), nodes without an incoming edge
        start at that time, distances are times that may be negative, and the weights may have any sign. Raises
        GraphHasCycle.
        """
        chains, first = self.chains, self.chains.first
        if not len(first):
            return np.zeros(len(self), dtype=np.int64) if begin is None else begin.astype(np.int64)
        chain_distance = chains.forward(np.add.reduceat(weight, first), begin)
        distance = np.zeros(len(self), dtype=np.int64) if begin is None else begin.astype(np.int64)
        sizes = chains.size
        for part in parts_of(len(first)):
            begins, size = first[part], sizes[part]
            edges = slice(int(begins[0]), int(begins[-1] + size[-1]))
            way = np.cumsum(weight[edges])
            way += np.repeat(chain_distance[chains.src[part]] - way[begins - begins[0]] + weight[begins], size)
            distance[self.dst[edges]] = way
        distance[chains.node] = chain_distance
        return distance

    def path(self, weight: Ints | None = None) -> Ints:
        """Return the edges of the longest path, in order, as indices into the edge arrays.

        The path is empty if no edge takes time. `weight` (m,) replaces the graph's weights and may have any sign.
        Raises networkx.NetworkXUnfeasible if there is a cycle.
        """
        weight = self.weight if weight is None else weight
        largest = max(abs(int(weight.max(initial=0))), abs(int(weight.min(initial=0))))
        if largest * len(weight) >= 2**63 and sum(map(abs, weight.tolist())) >= 2**63:
            return self._by_networkx()
        chains = self.chains
        # The path may end before a removed edge (negative weight), so a removed edge must end its chain.
        if ((weight < 0) & (self.weight >= 0)).any():
            chains = Chains([(self.src, self.dst, weight)], len(self), self.node_ids)
        total = weight if not len(weight) else np.add.reduceat(weight, chains.first)
        return chains.path(total, lambda first, past: weight[first:past], self.choose)

    def edges_along(self, nodes: Sequence[int]) -> Ints:
        """Return the edges between the nodes of a path, in order, as indices into the edge arrays."""
        order, turn = np.argsort(self.node_ids), np.full(len(self), -2)
        turn[order[np.searchsorted(self.node_ids, np.array(nodes), sorter=order)]] = np.arange(len(nodes))
        edges = np.flatnonzero((turn[self.src] + 1 == turn[self.dst]) & (turn[self.src] >= 0))
        return edges[np.argsort(turn[self.src[edges]])]

    def choose(self, edges: Collection[int]) -> int:
        """Return the edge that the path ends with, from several candidates.

        With `first_edge_wins`, it is the smallest edge, else the edge to the node that networkx visits first.
        """
        if self.first_edge_wins:
            return min(edges)
        import networkx as nx

        visited = {node: turn for turn, node in enumerate(nx.topological_sort(self.to_networkx()))}
        return min(edges, key=lambda edge: visited[int(self.node_ids[self.dst[edge]])])

    def _by_networkx(self) -> Ints:
        """Return the path that networkx finds. networkx adds up Python integers, so large weights do not overflow."""
        import networkx as nx

        return self.edges_along(nx.dag_longest_path(self.to_networkx(), weight="weight", backend="networkx"))

    def is_directed(self) -> bool:
        """Return True. networkx calls this method before it dispatches."""
        return True

    def is_multigraph(self) -> bool:
        """Return False. networkx calls this method before it dispatches."""
        return False

    def __len__(self) -> int:
        return len(self.node_ids)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.node_ids.tolist())

    def number_of_nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.node_ids)

    def number_of_edges(self) -> int:
        """Return the number of edges."""
        return len(self.src)


def _whole(values: Iterable[Any], label: str) -> Ints:
    items = list(values)
    if not set(map(type, items)) <= {int}:
        raise NotImplementedError(f"tracelake takes graphs whose {label} are whole numbers; leave others to networkx")
    try:
        return np.array(items, dtype=np.int64)
    except OverflowError:
        raise NotImplementedError(f"tracelake takes {label} of 64 bits; leave larger ones to networkx") from None
