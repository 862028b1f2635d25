"""Between `networkx.DiGraph` and the graph held as arrays, both ways, keeping every order that decides ties."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph import ArrayGraph, Ints

_NONE = object()  # what no edge has as its weight


def from_networkx(graph: nx.DiGraph, weight: Hashable = "weight") -> ArrayGraph:
    """The nodes, the edges and one edge attribute of a graph as arrays; other attributes stay behind.

    Raises NotImplementedError for undirected graphs and for graphs with parallel edges.
    """
    if not graph.is_directed() or graph.is_multigraph():
        raise NotImplementedError("tracelake supports only directed graphs without parallel edges (networkx.DiGraph)")
    place = {node: i for i, node in enumerate(graph)}
    pred, succ = _neighbours(graph)
    dst, src = _ends(pred, place)
    found = [data.get(weight, _NONE) for data in _data(pred)]
    no_weight = np.fromiter((value is _NONE for value in found), dtype=bool, count=len(found))
    if no_weight.any():
        same_kind = next((value for value in found if value is not _NONE), 0)
        found = [same_kind if value is _NONE else value for value in found]
    else:
        no_weight = None
    by_source, into = _ends(succ, place)
    n = len(place)
    # Edges by source, then target, in both orders: where one has an edge, the other has it too.
    here, there = np.argsort(src * n + dst), np.argsort(by_source * n + into)
    out_order = np.empty_like(here)
    out_order[there] = here
    # Nodes stay objects unless they are ints: another NaN would be another node.
    nodes, weights = array_of(place, floats=False), array_of(found)
    return ArrayGraph(nodes, src, dst, weights, weight, no_weight, out_order)


def to_networkx(graph: ArrayGraph) -> nx.DiGraph:
    """See `ArrayGraph.to_networkx`."""
    result = nx.DiGraph()
    nodes = graph.node_ids.tolist()
    result.add_nodes_from(nodes)
    src, dst, name = graph.src.tolist(), graph.dst.tolist(), graph.weight_name
    data: list[dict] = [{name: weight} for weight in graph.weight.tolist()]
    if graph.no_weight is not None:
        for edge in np.flatnonzero(graph.no_weight).tolist():
            data[edge].clear()
    if graph.out_order is None:
        result.add_edges_from((nodes[u], nodes[v], d) for u, v, d in zip(src, dst, data, strict=True))
        return result
    # `add_edge` would list predecessors and successors in one order, and these may have two.
    pred, succ = _neighbours(result)
    for u, v, d in zip(src, dst, data, strict=True):
        pred[nodes[v]][nodes[u]] = d
    for edge in graph.out_order.tolist():
        succ[nodes[src[edge]]][nodes[dst[edge]]] = data[edge]
    return result


def _neighbours(graph: Any) -> tuple[Any, Any]:
    """The mappings node → neighbour → data behind `graph.pred` and `graph.succ`, without a view object a node."""
    return graph._pred, graph._succ


def array_of(values: Iterable[Any], *, floats: bool = True) -> npt.NDArray:
    """int64, or float64 unless `floats` is False, where that gives the values back as they are; else objects."""
    items = list(values)
    kinds = set(map(type, items))
    if floats and kinds == {float}:
        return np.array(items, dtype=np.float64)
    if kinds <= {int}:
        try:
            return np.array(items, dtype=np.int64)
        except OverflowError:
            pass
    return np.fromiter(items, dtype=object, count=len(items))  # np.array would look into tuples


def _ends(neighbours: Any, place: dict[Hashable, int]) -> tuple[Ints, Ints]:
    """The places of the nodes that have neighbours, once for each neighbour, and those of the neighbours."""
    counts = [len(others) for others in neighbours.values()]
    other = np.fromiter(map(place.__getitem__, chain.from_iterable(neighbours.values())), dtype=np.int64)
    own = np.fromiter((place[node] for node in neighbours), dtype=np.int64, count=len(counts))
    return np.repeat(own, counts), other


def _data(neighbours: Any) -> Iterable[dict]:
    return chain.from_iterable(others.values() for others in neighbours.values())
