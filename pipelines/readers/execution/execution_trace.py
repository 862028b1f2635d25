"""Loading of an execution trace into the tables of a connection that has the profiler trace (see tables.py).

The text is streamed. Nodes and their tensors, about 2 kB per node, stay in memory until the edges are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipelines.models.python_tables import insert_parts
from pipelines.models.sqltext import quoted
from pipelines.readers.execution.edges import data_edges
from pipelines.readers.execution.join import join_operators, read_operators
from pipelines.readers.execution.node_stream import stream_nodes
from pipelines.readers.execution.nodes import Node
from pipelines.readers.execution.stream import NodeStream
from pipelines.readers.execution.tables import TABLES, create_tables


@dataclass(frozen=True)
class ExecutionSummary:
    """The row of `execution_summary`: the part of a profiler trace that was joined to an execution trace."""

    path: str
    schema: str
    method: str
    n_nodes: int
    n_operators: int
    n_joined: int
    n_edges: int

    @property
    def share(self) -> float:
        """Share of the profiler trace's operators (cpu_op) that have a node, 0 to 1."""
        return self.n_joined / self.n_operators if self.n_operators else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the fields and the share, for JSON."""
        return {**asdict(self), "share": self.share}


def load_execution(
    con: duckdb.DuckDBPyConnection, path: Path, trace_id: str, on_bytes: Callable[[int], object] | None = None
) -> ExecutionSummary:
    """Read an execution trace for the trace `trace_id` in `events`, join the two, and replace the trace's earlier rows.

    Raise TraceRejected if the file is not an execution trace, and OSError if it cannot be read. For a join without
    matches, `method` is "none".
    """
    create_tables(con)
    nodes, schema = read_nodes(path, on_bytes)
    for table in TABLES:
        con.execute(f"DELETE FROM {table} WHERE trace_id = {quoted(trace_id)}")
    edges = data_edges(nodes)
    joined = join_operators(read_operators(con, trace_id), nodes)
    rows_by_table: dict[str, Iterable[Sequence[Any]]] = {
        "execution_nodes": map(_node_row, nodes),
        "execution_tensors": (row for node in nodes for row in _tensor_rows(node)),
        "execution_edges": edges,
        "operator_nodes": joined.pairs,
    }
    for table, rows in rows_by_table.items():
        insert_parts(con, table, ((trace_id, *row) for row in rows))
    n_operators, n_joined = con.execute(
        "SELECT count(*), count(o.event_id) FROM events AS e LEFT JOIN operator_nodes AS o USING (trace_id, event_id) "
        f"WHERE trace_id = {quoted(trace_id)} AND e.cat = 'cpu_op' AND e.duration_ns IS NOT NULL"
    ).fetchall()[0]
    n_nodes = sum(node.is_operator for node in nodes)
    summary = ExecutionSummary(str(path), schema, joined.method, n_nodes, n_operators, n_joined, len(edges))
    insert_parts(con, "execution_summary", [(trace_id, *asdict(summary).values())])
    return summary


def read_nodes(path: Path, on_bytes: Callable[[int], object] | None = None) -> tuple[list[Node], str]:
    """Return the nodes of an execution trace in the order of the file, and its schema version.

    Raise TraceRejected if the file is not an execution trace, and OSError if it cannot be read.
    """
    stream = NodeStream(path, on_bytes)
    nodes = list(stream_nodes(path, stream))
    return nodes, str(stream.head.get("schema", "unknown"))


def _node_row(node: Node) -> tuple[Any, ...]:
    return (
        node.node_id, node.parent_id, node.place, node.name, node.rf_id, node.fw_parent_id,
        node.seq_id, node.scope, node.tid, node.op_schema,
    )  # fmt: skip


def _tensor_rows(node: Node) -> Iterator[tuple[Any, ...]]:
    for is_output, tensors in ((False, node.inputs), (True, node.outputs)):
        for tensor in tensors:
            yield (node.node_id, is_output, *tensor)
