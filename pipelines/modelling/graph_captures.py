"""Which other trace shows how the graphs of a trace were captured: the user says so, for one question."""

from __future__ import annotations

import duckdb

from pipelines.models.python_tables import create_table, given_table
from pipelines.sqltext import row


@given_table(
    "_graph_capture_traces",
    layer="canonical",
    doc="One row: a trace with graph replays, and another one that may show how the graphs were captured.",
    columns=(
        ("trace_id", "VARCHAR", "The trace with the replays."),
        ("capture_trace_id", "VARCHAR", "The other trace, whose events are in the same tables."),
    ),
)
def create_graph_captures(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_graph_capture_traces` without rows, unless `con` has it."""
    create_table(con, "_graph_capture_traces", "TABLE IF NOT EXISTS")


def use_capture(con: duckdb.DuckDBPyConnection, trace_id: str, capture_trace_id: str) -> None:
    """Let the graphs of a trace be looked up in another one, too; both are in `events` of `con`."""
    create_graph_captures(con)
    con.execute(f"INSERT INTO _graph_capture_traces VALUES {row([trace_id, capture_trace_id])}")
