"""tracelake's networkx backend: `networkx.dag_longest_path` on a graph held as arrays.

networkx finds it by the entry points in pyproject.toml: `networkx.backends` here, `networkx.backend_info` in
`backend_info.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from pipelines.critical_path.convert import array_of, from_networkx
from pipelines.critical_path.graph import ArrayGraph, Ints
from pipelines.critical_path.longest import longest_path_edges

# Any hashable object may be a weight's name; networkx's stubs know texts only.
_NX_PATH: Any = partial(nx.dag_longest_path, backend="networkx")
_NX_LENGTH: Any = partial(nx.dag_longest_path_length, backend="networkx")
_WHOLE, _DOUBLE = {int, bool, np.int64}, {float, np.float64}


class BackendInterface:
    """The functions that networkx dispatches here; both take and give what networkx's own do."""

    @staticmethod
    def convert_from_nx(
        graph: nx.DiGraph, edge_attrs: dict | None = None, preserve_edge_attrs: bool = False, **_: Any
    ) -> ArrayGraph:
        """The graph as arrays with one edge attribute: the one in `edge_attrs`, else `weight`.

        Raises NotImplementedError for undirected graphs, for graphs with parallel edges, and where several attributes
        are asked for.
        """
        if preserve_edge_attrs or len(edge_attrs or {}) > 1:
            raise NotImplementedError("tracelake's graphs hold one edge attribute")
        # networkx gives the default, too, but a graph that is kept may be asked again with another one.
        return from_networkx(graph, next(iter(edge_attrs), None) if edge_attrs is not None else "weight")

    @staticmethod
    def convert_to_nx(result: Any, **_: Any) -> Any:
        """Give graphs back as `networkx.DiGraph`, everything else as it is."""
        return result.to_networkx() if isinstance(result, ArrayGraph) else result

    @staticmethod
    def can_run(name: str, args: tuple, kwargs: dict) -> bool | str:
        """Decline graphs with parallel edges, which networkx then runs itself where it may choose."""
        graph = args[0] if args else kwargs["G"]
        return "graphs with parallel edges are not supported" if graph.is_multigraph() else True

    @staticmethod
    def should_run(name: str, args: tuple, kwargs: dict) -> bool | str:
        """Leave networkx's own graphs to networkx where nothing is gained by a conversion."""
        ordered = kwargs.get("topo_order") is not None or (len(args) > 3 and args[3] is not None)
        return "networkx itself follows a given topo_order" if ordered else True

    @staticmethod
    def dag_longest_path(
        G: ArrayGraph,
        weight: Hashable = "weight",
        default_weight: Any = 1,
        topo_order: Any = None,
    ) -> list:
        """The nodes along the longest path; networkx's answer, ties included. Raises NetworkXUnfeasible on a cycle.

        Weights that are neither whole numbers nor finite doubles (fractions, huge numbers, NaN), and a `topo_order`, are
        left to networkx: right, but slow.
        """
        found = None if topo_order is not None else _solve(G, _weights(G, weight, default_weight))
        if found is None:
            return _NX_PATH(G.to_networkx(), weight, default_weight, topo_order)
        return _nodes(G, *found)

    @staticmethod
    def dag_longest_path_length(G: ArrayGraph, weight: Hashable = "weight", default_weight: Any = 1) -> Any:
        """Summed weight along the longest path. Raises NetworkXUnfeasible on a cycle."""
        weights = _weights(G, weight, default_weight)
        found = _solve(G, weights)
        if found is None:
            return _NX_LENGTH(G.to_networkx(), weight, default_weight)
        on_path = weights[found[0]]
        if on_path.dtype.kind == "i":
            return int(on_path.sum())
        return reduce(add, on_path.tolist(), 0)  # one by one from 0, as networkx adds: sums of doubles depend on it


def _weights(graph: ArrayGraph, name: Hashable, default: Any) -> npt.NDArray:
    """The weights that a call asks for, with its default where an edge has none."""
    if name != graph.weight_name:
        return array_of([default] * len(graph.src))
    if graph.no_weight is None:
        return graph.weight
    weights = graph.weight.tolist()
    for edge in np.flatnonzero(graph.no_weight).tolist():
        weights[edge] = default
    return array_of(weights)


def _solve(graph: ArrayGraph, weights: npt.NDArray) -> tuple[Ints, int | None] | None:
    """The longest path under these weights, or None where arrays of numbers would not do what Python does."""
    numbers = _numbers(weights)
    if numbers is None:
        return None
    return longest_path_edges(graph if numbers is graph.weight else replace(graph, weight=numbers))


def _numbers(weights: npt.NDArray) -> npt.NDArray | None:
    """The weights such that no sum along a path overflows or is rounded other than Python rounds it, or None."""
    if weights.dtype.kind == "f":
        return weights if np.isfinite(weights).all() else None
    if weights.dtype.kind != "O":
        return weights.astype(np.int64, copy=False) if _largest_sum(weights) < 2**63 else None
    kinds = set(map(type, weights))
    if not kinds <= _WHOLE | _DOUBLE:
        return None
    # Whole numbers are exact as doubles while their sums stay below 2**53: then it does not matter where on a path the
    # first double comes.
    whole = sum(abs(int(value)) for value in weights if type(value) in _WHOLE)
    if whole > (2**53 if kinds & _DOUBLE else 2**63 - 1):
        return None
    return _numbers(weights.astype(np.float64 if kinds & _DOUBLE else np.int64))


def _largest_sum(weights: npt.NDArray) -> int:
    """No sum of some of these whole numbers is larger, whatever its sign."""
    if not len(weights):
        return 0
    largest = max(abs(int(weights.max())), abs(int(weights.min())))
    quick = largest * len(weights)
    return quick if quick < 2**63 else sum(map(abs, weights.tolist()))


def _nodes(graph: ArrayGraph, edges: Ints, last: int | None) -> list:
    return [] if last is None else graph.node_ids[np.append(graph.src[edges], last)].tolist()
