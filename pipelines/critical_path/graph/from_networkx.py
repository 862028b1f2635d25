"""From `networkx.DiGraph` to the graph held as arrays, preserving every order that decides ties (back: graph.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import networkx as nx
import numpy as np

from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints


def from_networkx(graph: nx.DiGraph) -> ArrayGraph:
    """Returns the nodes, the edges and their attribute `weight` as arrays; other attributes are dropped.

    Raises NotImplementedError for undirected graphs, for parallel edges, and for nodes or weights that are not 64-bit
    integers.
    """
    if not graph.is_directed() or graph.is_multigraph():
        raise NotImplementedError("tracelake supports only directed graphs without parallel edges (networkx.DiGraph)")
    # The mappings node → neighbor → data behind `graph.pred` and `graph.succ`, without one view object per node.
    pred: Any = graph._pred  # pyright: ignore[reportAttributeAccessIssue]
    succ: Any = graph._succ  # pyright: ignore[reportAttributeAccessIssue]
    nodes = _whole(graph, "nodes")
    weights = _whole((data.get("weight") for others in pred.values() for data in others.values()), "weights")
    place = {node: i for i, node in enumerate(graph)}
    dst, src = _ends(pred, place)
    by_source, into = _ends(succ, place)
    n = len(place)
    # Edges by source, then target, in both orders: an edge in one is also in the other.
    here, there = np.argsort(src * n + dst), np.argsort(by_source * n + into)
    out_order = np.empty_like(here)
    out_order[there] = here
    return ArrayGraph(nodes, src, dst, weights, out_order)


def _whole(values: Iterable[Any], what: str) -> Ints:
    items = list(values)
    if not set(map(type, items)) <= {int}:
        raise NotImplementedError(f"tracelake takes graphs whose {what} are whole numbers; leave others to networkx")
    try:
        return np.array(items, dtype=np.int64)
    except OverflowError:
        raise NotImplementedError(f"tracelake takes {what} of 64 bits; leave larger ones to networkx") from None


def _ends(neighbours: Mapping[int, Mapping[int, Any]], place: Mapping[int, int]) -> tuple[Ints, Ints]:
    """Returns the indices of the nodes that have neighbors, once per neighbor, and those of the neighbors."""
    counts = [len(others) for others in neighbours.values()]
    other = np.fromiter(map(place.__getitem__, chain.from_iterable(neighbours.values())), dtype=np.int64)
    own = np.fromiter((place[node] for node in neighbours), dtype=np.int64, count=len(counts))
    return np.repeat(own, counts), other
