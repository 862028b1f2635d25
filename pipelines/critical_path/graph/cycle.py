"""The error of a graph that has no longest path, apart from `dependency_graph.py`, which does not need networkx."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from pipelines.base.errors import TracelakeError


class GraphHasCycle(TracelakeError, nx.NetworkXUnfeasible):
    """The graph has a cycle, so it has no longest path. `nodes` names some of the nodes that are on or behind the
    cycle.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = nodes
        super().__init__(f"Graph contains a cycle; nodes on it or after it: {', '.join(map(str, nodes))}")
