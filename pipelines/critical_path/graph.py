"""A dependency graph held as arrays: no Python object a node or an edge.

The graph comes straight from `critical_path_edges`. networkx sees it through the backend in `backend.py`, so
`networkx.dag_longest_path(graph)` works on it; `to_networkx` gives an ordinary `networkx.DiGraph` to edit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class GraphHasCycle(nx.NetworkXUnfeasible):
    """The graph has a cycle, so it has no longest path. `nodes` names some of the nodes that never became free."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes = nodes
        super().__init__(f"Graph contains a cycle; nodes on it or behind it: {', '.join(map(str, nodes))}")


@dataclass(frozen=True, eq=False)
class ArrayGraph:
    """A weighted directed graph without parallel edges.

    `node_ids` (n,) are the nodes in networkx's insertion order; `src`, `dst` (m,) index into it, in the order in which
    the edges were inserted; `weight` (m,) is in nanoseconds.
    """

    node_ids: Ints
    src: Ints
    dst: Ints
    weight: npt.NDArray

    __networkx_backend__ = "tracelake"

    @classmethod
    def from_edges(cls, src: Ints, dst: Ints, weight: npt.NDArray) -> ArrayGraph:
        """Build from edges between node ids (non-negative, at most about twice the number of events), in insertion order."""
        ends = np.empty(2 * len(src), dtype=np.int64)
        ends[0::2], ends[1::2] = src, dst
        # The first place of every id: later writes win, so write backwards.
        first = np.full(int(ends.max()) + 1 if len(ends) else 0, -1, dtype=np.int64)
        first[ends[::-1]] = np.arange(len(ends) - 1, -1, -1)
        ids = np.flatnonzero(first >= 0)
        ids = ids[np.argsort(first[ids], kind="stable")]
        first[ids] = np.arange(len(ids))
        return cls(ids, first[np.asarray(src)], first[np.asarray(dst)], np.asarray(weight))

    def to_networkx(self) -> nx.DiGraph:
        """An ordinary `networkx.DiGraph` over the node ids, with edge attribute `weight` in nanoseconds."""
        graph = nx.DiGraph()
        ids = self.node_ids.tolist()
        graph.add_nodes_from(ids)
        graph.add_weighted_edges_from(
            (ids[u], ids[v], w)
            for u, v, w in zip(self.src.tolist(), self.dst.tolist(), self.weight.tolist(), strict=True)
        )
        return graph

    def is_directed(self) -> bool:
        """True: networkx asks before it dispatches."""
        return True

    def is_multigraph(self) -> bool:
        """False: networkx asks before it dispatches."""
        return False

    def __len__(self) -> int:
        return len(self.node_ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.node_ids.tolist())

    def number_of_nodes(self) -> int:
        """How many nodes have an edge."""
        return len(self.node_ids)

    def number_of_edges(self) -> int:
        """How many edges there are."""
        return len(self.src)
