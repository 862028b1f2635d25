"""A dependency graph held as arrays, without a Python object per node or edge.

The graph comes straight from `critical_path_edges`, or from an ordinary `networkx.DiGraph` (`convert.py`). networkx
sees it through the backend in `backend.py`, so `networkx.dag_longest_path(graph)` works on it; `to_networkx` returns an
ordinary `networkx.DiGraph` to edit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import networkx as nx

Ints = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.int32 | np.int64]


def unfeasible() -> type[Exception]:
    """networkx's error for a graph with a cycle, to be caught: `except unfeasible()` imports networkx only for that."""
    import networkx as nx

    return nx.NetworkXUnfeasible


@dataclass(frozen=True, eq=False)
class ArrayGraph:
    """A weighted directed graph without parallel edges.

    `node_ids` (n,) are the nodes, integers, in networkx's insertion order. `src`, `dst` (m,) index into it, 32 bits wide
    where that is enough. The edges are in insertion order. If `out_order` (m,) is given, they are in the order in which
    networkx lists every node's predecessors, and `out_order` are their positions in the order in which it lists
    successors (views of a graph may list the two in orders that no insertion order produces).

    `weight` (m,) is the edge attribute `weight`; in graphs of traces nanoseconds.
    """

    node_ids: Nodes
    src: Nodes
    dst: Nodes
    weight: Ints
    out_order: Ints | None = None

    __networkx_backend__ = "tracelake"

    @classmethod
    def from_edges(cls, src: Nodes, dst: Nodes, weight: npt.NDArray) -> ArrayGraph:
        """Build from edges between node ids (non-negative, at most about twice the number of events), in insertion order.

        Raises TypeError if the weights are not integers.
        """
        if len(weight) and weight.dtype.kind != "i":
            raise TypeError(f"the weights are {weight.dtype}; give whole nanoseconds")
        # The first position of every id, where edge i has the positions 2i and 2i + 1: later writes win, so write
        # backward.
        src, dst = (ends if ends.dtype == np.int32 else np.asarray(ends, dtype=np.int64) for ends in (src, dst))
        count = 2 * len(src)
        size = int(max(np.max(src), np.max(dst))) + 1 if count else 0
        small = np.int32 if max(count, size) < 2**31 else np.int64
        first, first_in = np.full(size, count, dtype=small), np.full(size, count, dtype=small)
        first[src[::-1]] = np.arange(count - 2, -1, -2, dtype=small)
        first_in[dst[::-1]] = np.arange(count - 1, 0, -2, dtype=small)
        np.minimum(first, first_in, out=first)
        del first_in
        ids = np.flatnonzero(first < count).astype(small)
        ids = ids[np.argsort(first[ids], kind="stable")]
        first[ids] = np.arange(len(ids), dtype=small)  # from here on, the place of the id
        return cls(ids, first[src], first[dst], np.asarray(weight, dtype=np.int64))

    def to_networkx(self) -> nx.DiGraph:
        """Returns an ordinary `networkx.DiGraph` over the nodes, with the edge attribute `weight`.

        Nodes, successors and predecessors are listed in the order of the graph that this one was made from.
        """
        import networkx as nx

        result = nx.DiGraph()
        nodes = self.node_ids.tolist()
        result.add_nodes_from(nodes)
        edges = [
            (nodes[u], nodes[v], {"weight": weight})
            for u, v, weight in zip(self.src.tolist(), self.dst.tolist(), self.weight.tolist(), strict=True)
        ]
        # `add_edge` would list predecessors and successors in one order, but these may have two.
        for u, v, data in edges:
            result._pred[v][u] = data  # pyright: ignore[reportAttributeAccessIssue]
        for u, v, data in edges if self.out_order is None else map(edges.__getitem__, self.out_order.tolist()):
            result._succ[u][v] = data  # pyright: ignore[reportAttributeAccessIssue]
        return result

    def is_directed(self) -> bool:
        """True: networkx asks before it dispatches."""
        return True

    def is_multigraph(self) -> bool:
        """False: networkx asks before it dispatches."""
        return False

    def __len__(self) -> int:
        return len(self.node_ids)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.node_ids.tolist())

    def number_of_nodes(self) -> int:
        """Returns the number of nodes."""
        return len(self.node_ids)

    def number_of_edges(self) -> int:
        """Returns the number of edges."""
        return len(self.src)
