"""From edge tables to the critical path: the answer of `networkx.dag_longest_path` over each window, back into a table.

The graph goes straight to the backend that networkx would hand it to: importing networkx takes longer than most paths.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np

from pipelines.base.database import give_back
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints, unfeasible
from pipelines.critical_path.graph.window_edges import EDGES, read_windows, window_sizes
from pipelines.critical_path.longest.backend import solve
from pipelines.critical_path.longest.long_window import GRAPH, LONG, LongWindow
from pipelines.models.python_tables import create_table, python_model


@dataclass(frozen=True)
class WindowGraph:
    """The graph of one window; `edge_ids` (m,) are in the order of the graph's edge arrays."""

    graph: ArrayGraph
    edge_ids: np.ndarray


def path_edges(window: WindowGraph) -> np.ndarray:
    """Returns the ids of the edges on the longest path, in order. Raises networkx.NetworkXUnfeasible if there is a
    cycle.
    """
    graph = window.graph
    try:
        return window.edge_ids[solve(graph)[0]]
    except NotImplementedError:  # networkx adds up numbers of any size
        return window.edge_ids[_by_networkx(graph)]


def _by_networkx(graph: ArrayGraph) -> np.ndarray:
    """Returns the edges of the longest path, in order, as indices in the graph's edge arrays."""
    import networkx as nx

    nodes = np.asarray(nx.dag_longest_path(graph.to_networkx(), weight="weight"), dtype=np.int64)
    # No two edges join the same nodes, so an edge is on the path if its ends are adjacent there.
    step = np.full(int(graph.node_ids.max()) + 1 if len(graph) else 0, -2, dtype=np.int64)
    step[nodes] = np.arange(len(nodes))
    step = step[graph.node_ids]
    taken = np.flatnonzero((step[graph.src] >= 0) & (step[graph.dst] == step[graph.src] + 1))
    return taken[np.argsort(step[graph.src[taken]])]


def _graph_of(columns: list[np.ndarray]) -> WindowGraph:
    """Takes the arrays out of the list: of a long trace there is no room for them beside the graph."""
    edge_id, src, dst, weight = columns
    columns.clear()
    return WindowGraph(ArrayGraph.from_edges(src, dst, weight), edge_id)


@python_model(
    "_longest_path",
    layer="critical_path",
    doc="One row: an edge that networkx.dag_longest_path chose in a window, in numbers only.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("seq", "BIGINT", "Place on the path, from 1."),
        ("edge_id", "BIGINT", "The edge in _edges."),
    ),
    reads=("_edges", "_refused_windows"),
    checks=("unique(window_no, seq)",),
)
def longest_paths(con: duckdb.DuckDBPyConnection) -> None:
    """Create table `_longest_path` (window_no, seq from 1, edge_id): the critical path of every window.

    A window whose graph has a cycle or is refused (`_refused_windows`) has no rows; `quality` says so.
    """
    create_table(con, "_longest_path")
    for numbers, n_edges in window_sizes(con):
        if n_edges > LONG and len(numbers) == 1:
            _insert_long(con, numbers[0])
            continue
        found = []
        for number, columns in read_windows(con, numbers, GRAPH):
            try:
                edges = path_edges(_graph_of(columns))
            except unfeasible():
                continue
            found.append((np.full(len(edges), number), np.arange(1, len(edges) + 1), edges))
        if found:
            _insert(con, *map(np.concatenate, zip(*found, strict=True)))


def _insert_long(con: duckdb.DuckDBPyConnection, number: int) -> None:
    give_back(con)
    window = LongWindow(con, number)
    try:
        edges = window.path() if window.sums_fit() else None
        if edges is None:
            ((_, columns),) = read_windows(con, [number], GRAPH)
            edges = path_edges(_graph_of(columns))
    except unfeasible():
        return
    for first in range(0, len(edges), EDGES):
        some = edges[first : first + EDGES]
        _insert(con, np.full(len(some), number), np.arange(first + 1, first + len(some) + 1), some)


def _insert(con: duckdb.DuckDBPyConnection, window: Ints, seq: Ints, edge_id: Ints) -> None:
    # DuckDB reads the arrays by the name of this variable; an Arrow table would make it import pandas.
    rows = {"window_no": window, "seq": seq, "edge_id": edge_id}
    con.execute("INSERT INTO _longest_path SELECT window_no, seq, edge_id FROM rows")
    del rows
