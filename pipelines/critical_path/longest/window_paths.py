"""Critical paths from edge tables: the longest path of each window, as a table.

Dagster's asset and notebooks call `networkx.dag_longest_path`, which dispatches to `ArrayGraph`. Commands call the
class directly, because importing networkx takes longer than most paths.
"""

from __future__ import annotations

import sys
from types import ModuleType

import duckdb
import numpy as np

from pipelines.base.database import give_back
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, first_edge_wins, unfeasible
from pipelines.critical_path.graph.window_edges import EDGES, read_windows, window_sizes
from pipelines.critical_path.longest.long_window import GRAPH, LONG, LongWindow
from pipelines.models.python_tables import create_table, python_model


@python_model(
    "_longest_path",
    layer="critical_path",
    doc="One row: an edge of the longest path of a window, in numbers only.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("seq", "BIGINT", "Position on the path, from 1."),
        ("edge_id", "BIGINT", "The edge in _edges."),
    ),
    reads=("_edges", "_refused_windows", "critical_path_windows"),
    checks=("unique(window_no, seq)",),
)
def longest_paths(con: duckdb.DuckDBPyConnection) -> None:
    """Create table `_longest_path` (window_no, seq from 1, edge_id): the critical path of every window.

    A window whose graph has a cycle or is refused (`_refused_windows`) has no rows, and `quality` reports it.
    """
    create_table(con, "_longest_path")
    profiles = dict(con.execute("SELECT window_no, profile FROM critical_path_windows").fetchall())
    for numbers, n_edges in window_sizes(con):
        if n_edges > LONG and len(numbers) == 1:
            _insert_long(con, numbers[0], profiles[numbers[0]])
            continue
        parts = []
        for number, columns in read_windows(con, numbers, GRAPH):
            try:
                edges = _path_of(columns, profiles[number])
            except unfeasible():
                continue
            parts.append((np.full(len(edges), number), np.arange(1, len(edges) + 1), edges))
        if parts:
            _insert(con, *map(np.concatenate, zip(*parts, strict=True)))


def _graph_of(columns: list[np.ndarray], profile: str) -> tuple[Ints, ArrayGraph]:
    """Return the edge ids and the graph, and empty the list, because a long trace does not fit in memory twice."""
    edge_id, src, dst, weight = columns
    columns.clear()
    return edge_id, ArrayGraph.from_edges(src, dst, weight, profile)


def _path_of(columns: list[np.ndarray], profile: str) -> Ints:
    edge_id, graph = _graph_of(columns, profile)
    networkx = _imported_networkx()
    if networkx is None:
        return edge_id[graph.path()]
    return edge_id[graph.edges_along(networkx.dag_longest_path(graph, backend="tracelake"))]


def _imported_networkx() -> ModuleType | None:
    """Return networkx if the program has imported it and it knows the backend, else None.

    `assets/` and `faces/notebook/` import networkx. networkx knows the backend if tracelake is installed.
    """
    if "networkx" not in sys.modules:
        return None
    import networkx  # waits if another thread is still importing it

    return networkx if "tracelake" in networkx.config.backends else None


def _insert_long(con: duckdb.DuckDBPyConnection, number: int, profile: str) -> None:
    give_back(con)

    def whole() -> list[np.ndarray]:
        return read_windows(con, [number], GRAPH)[0][1]

    try:
        window = LongWindow(con, number)
        choose = min if first_edge_wins(profile) else lambda ends: _graph_of(whole(), profile)[1].choose(ends)
        edges = window.path(choose) if window.sums_fit() else _path_of(whole(), profile)
    except unfeasible():
        return
    for first in range(0, len(edges), EDGES):
        some = edges[first : first + EDGES]
        _insert(con, np.full(len(some), number), np.arange(first + 1, first + len(some) + 1), some)


def _insert(con: duckdb.DuckDBPyConnection, window: Ints, seq: Ints, edge_id: Ints) -> None:
    # DuckDB finds the arrays by the name of this variable. With an Arrow table, it would import pandas.
    rows = {"window_no": window, "seq": seq, "edge_id": edge_id}
    con.execute("INSERT INTO _longest_path SELECT window_no, seq, edge_id FROM rows")
    del rows
