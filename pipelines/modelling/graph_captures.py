"""Input tables that supplement a trace that has graph replays, for a single question of the user.

They contain another trace that may show how the graphs were captured, and the names that the program gave to the
graphs' nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from pipelines.models.python_tables import create_table, input_table, insert_columns
from pipelines.models.sqltext import row


@input_table(
    "_graph_capture_traces",
    layer="canonical",
    doc="One row: a trace with graph replays, and another one that may show how the graphs were captured.",
    columns=(
        ("trace_id", "VARCHAR", "The trace with the replays."),
        ("capture_trace_id", "VARCHAR", "The trace of the capture, whose events are in the same tables."),
    ),
)
@input_table(
    "_graph_node_names",
    layer="canonical",
    doc="One row: a node of a graph of a trace, and the program's name for it.",
    columns=(
        ("trace_id", "VARCHAR", "The trace with the replays."),
        ("graph_node", "BIGINT", "Id of the node, with the graph's id in the upper 32 bits."),
        ("name", "VARCHAR", "The name."),
    ),
)
def create_graph_captures(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_graph_capture_traces` and `_graph_node_names` without rows, unless `con` has them."""
    create_table(con, "_graph_capture_traces", "TABLE IF NOT EXISTS")
    create_table(con, "_graph_node_names", "TABLE IF NOT EXISTS")


def use_capture(con: duckdb.DuckDBPyConnection, trace_id: str, capture_trace_id: str) -> None:
    """Register another trace for finding the captures of a trace's graphs. `events` of `con` must contain both."""
    create_graph_captures(con)
    con.execute(f"INSERT INTO _graph_capture_traces VALUES {row([trace_id, capture_trace_id])}")


def use_names(con: duckdb.DuckDBPyConnection, trace_id: str, names: Mapping[int, str]) -> None:
    """Set the names of a trace's graph nodes. `names`: by node id, which has the graph's id in the upper 32 bits."""
    create_graph_captures(con)
    columns = {"trace_id": [trace_id] * len(names), "graph_node": list(names), "name": list(names.values())}
    insert_columns(con, "_graph_node_names", columns)
