"""tracelake's networkx backend: `networkx.dag_longest_path` on a graph stored as arrays.

networkx finds the backend through two entry points in pyproject.toml. `networkx.backends` refers to this module, and
`networkx.backend_info` to `backend_info.py`. The backend accepts graphs whose nodes and weights are integers, as in our
tables, and declines all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.critical_path.graph.dependency_graph import ArrayGraph

if TYPE_CHECKING:
    import networkx as nx

_PARAMETERS = ("G", "weight", "default_weight", "topo_order")


class BackendInterface:
    """Functions that networkx dispatches to this backend. Arguments and results are those of networkx's functions."""

    @staticmethod
    def convert_from_nx(graph: nx.DiGraph, **_: Any) -> ArrayGraph:
        """Convert the graph to arrays with its attribute `weight`.

        Raises NotImplementedError as `from_networkx` does.
        """
        return ArrayGraph.from_networkx(graph)

    @staticmethod
    def convert_to_nx(result: Any, **_: Any) -> Any:
        """Convert graphs back to `networkx.DiGraph`, and return other values unchanged."""
        return result.to_networkx() if isinstance(result, ArrayGraph) else result

    @staticmethod
    def can_run(name: str, args: tuple, kwargs: dict) -> bool | str:
        """Return True, or the reason why the backend cannot compute the call.

        Declines parallel edges, weights other than `weight` and a topological order passed by the caller. The
        conversion declines nodes and weights that are not integers.
        """
        arguments: dict[str, Any] = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        if arguments["G"].is_multigraph():
            return "graphs with parallel edges are not supported"
        if arguments.get("weight", "weight") != "weight":
            return "only the edge attribute `weight` is supported"
        return "networkx itself follows a given topo_order" if arguments.get("topo_order") is not None else True

    @staticmethod
    def should_run(name: str, args: tuple, kwargs: dict) -> bool:
        """Return True for an `ArrayGraph` only.

        networkx handles the graphs of the user's program, unless the call names this backend.
        """
        return isinstance(args[0] if args else kwargs["G"], ArrayGraph)

    @staticmethod
    def dag_longest_path(
        G: ArrayGraph, weight: str = "weight", default_weight: Any = 1, topo_order: Any = None
    ) -> list:
        """Return the nodes along the longest path.

        The result equals networkx's, including ties, unless the first edge wins in G. Raises NetworkXUnfeasible on a
        cycle.
        """
        import networkx as nx

        edges = G.path()
        if not len(edges):  # no edge takes time, so the path is one node, if there is any
            return nx.dag_longest_path(G.to_networkx(), backend="networkx")[:1]
        return G.node_ids[np.append(G.src[edges[:1]], G.dst[edges])].tolist()

    @staticmethod
    def dag_longest_path_length(G: ArrayGraph, weight: str = "weight", default_weight: Any = 1) -> int:
        """Return the summed weight along the longest path. Raises NetworkXUnfeasible on a cycle."""
        return sum(G.weight[G.path()].tolist())
