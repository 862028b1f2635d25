"""The error for a graph with a cycle, in a separate module so that `dependency_graph.py` does not import networkx."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from pipelines.base.errors import TracelakeError


class GraphHasCycle(TracelakeError, nx.NetworkXUnfeasible):
    """A graph has a cycle, so it has no longest path.

    `nodes` contains some of the nodes on or after the cycle.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = nodes
        super().__init__(f"Graph contains a cycle; nodes on it or after it: {', '.join(map(str, nodes))}")
