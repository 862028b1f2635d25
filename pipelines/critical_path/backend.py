"""tracelake's networkx backend: `networkx.dag_longest_path` on a graph held as arrays.

networkx finds it by the entry points in pyproject.toml: `networkx.backends` here, `networkx.backend_info` in
`backend_info.py`.
"""

from __future__ import annotations

from typing import Any

import networkx as nx

from pipelines.critical_path.graph import ArrayGraph
from pipelines.critical_path.longest import longest_path_edges


class BackendInterface:
    """The functions that networkx dispatches here; both take and give what networkx's own do."""

    @staticmethod
    def convert_from_nx(graph: nx.DiGraph, **_: Any) -> ArrayGraph:
        """Ordinary graphs stay with networkx: the arrays hold whole-number nodes in the order of insertion only.

        Raises NotImplementedError.
        """
        raise NotImplementedError(
            "tracelake takes graphs made by ArrayGraph.from_edges; give this one to networkx itself"
        )

    @staticmethod
    def convert_to_nx(result: Any, **_: Any) -> Any:
        """Give graphs back as `networkx.DiGraph`, everything else as it is."""
        return result.to_networkx() if isinstance(result, ArrayGraph) else result

    @staticmethod
    def can_run(name: str, args: tuple, kwargs: dict) -> bool | str:
        """Decline calls with a topological order of the caller's own, which networkx then runs itself."""
        return "topo_order is not supported" if kwargs.get("topo_order") is not None else True

    @staticmethod
    def dag_longest_path(
        G: ArrayGraph, weight: str = "weight", default_weight: float = 1, topo_order: list | None = None
    ) -> list[int]:
        """Node ids along the longest path; networkx's answer, ties included. Raises NetworkXUnfeasible on a cycle."""
        if topo_order is not None:
            return nx.dag_longest_path(G.to_networkx(), weight, default_weight, topo_order, backend="networkx")
        edges, last = longest_path_edges(G)
        if last is None:
            return []
        return [*G.node_ids[G.src[edges]].tolist(), int(G.node_ids[last])]

    @staticmethod
    def dag_longest_path_length(G: ArrayGraph, weight: str = "weight", default_weight: float = 1) -> float:
        """Summed weight along the longest path. Raises NetworkXUnfeasible on a cycle."""
        edges, _ = longest_path_edges(G)
        return G.weight[edges].sum().item() if len(edges) else 0
