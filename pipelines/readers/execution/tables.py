"""Tables of an execution trace in a DuckDB connection, which SQL models read.

Without an execution trace, the tables exist without rows, because the models read them in any case.
"""

from __future__ import annotations

import duckdb

from pipelines.models.python_tables import create_table, input_table

TABLES = (
    "execution_nodes",
    "execution_tensors",
    "execution_edges",
    "operator_nodes",
    "execution_summary",
)


@input_table(
    "execution_nodes",
    layer="canonical",
    doc="One row: a node of the execution trace.",
    columns=(
        ("trace_id", "VARCHAR", "The profiler trace that it is joined to."),
        ("node_id", "BIGINT", "Id of the node; ascends in the order in which nodes start."),
        ("parent_id", "BIGINT", "Node around it; 0 when unknown."),
        ("ordinal", "BIGINT", "Position in the file, from 0. Nodes are in the order in which they end."),
        ("name", "VARCHAR", "Name of the operator or annotation."),
        ("rf_id", "BIGINT", "Id of its record function; 0 for the process and its threads."),
        ("fw_parent_id", "BIGINT", "For backward operators, the node of the forward pass; else 0."),
        ("seq_id", "BIGINT", "Autograd's sequence number; -1 if there is none."),
        ("scope", "BIGINT", "Scope of the record function: 0 operator, 1 backward, 7 annotation, …"),
        ("tid", "BIGINT", "Thread, numbered from 1 by the observer."),
        ("op_schema", "VARCHAR", "The operator's schema; empty for annotations."),
    ),
)
@input_table(
    "execution_tensors",
    layer="canonical",
    doc="One row: a tensor that is an argument or a result of a node.",
    columns=(
        ("trace_id", "VARCHAR", "The profiler trace."),
        ("node_id", "BIGINT", "The node."),
        ("is_output", "BOOLEAN", "Whether the tensor is a result; else it is an argument."),
        ("position", "BIGINT", "Which argument or result, from 0; tensors of one list share it."),
        ("tensor_id", "BIGINT", "Id of the tensor, the observer's."),
        ("storage_id", "BIGINT", "Id of its memory; 0 for none. Reused memory keeps its id."),
        ("storage_offset", "BIGINT", "Offset of its start in the memory, elements."),
        ("n_elements", "BIGINT", "Number of its elements."),
        ("element_bytes", "BIGINT", "Bytes of one element."),
        ("device", "VARCHAR", "cpu, cuda:0, …"),
        ("is_mutated", "BOOLEAN", "Whether the operator writes this argument in place."),
    ),
)
@input_table(
    "execution_edges",
    layer="canonical",
    doc="One row: a node that needs the result of another node.",
    columns=(
        ("trace_id", "VARCHAR", "The profiler trace."),
        ("producer_id", "BIGINT", "The node that has to end first."),
        ("consumer_id", "BIGINT", "The node that needs it."),
        (
            "kind",
            "VARCHAR",
            "read: the consumer reads a tensor or its memory; overwrite: it writes in place, after the producer has read.",
        ),
    ),
)
@input_table(
    "operator_nodes",
    layer="canonical",
    doc="One row: an event of the profiler trace and the same operation's node in the execution trace.",
    columns=(
        ("trace_id", "VARCHAR", "The profiler trace."),
        ("event_id", "BIGINT", "Operator or annotation."),
        ("node_id", "BIGINT", "Its node."),
    ),
)
@input_table(
    "execution_summary",
    layer="canonical",
    doc="One row: a profiler trace with a joined execution trace, and how much of it was joined.",
    columns=(
        ("trace_id", "VARCHAR", "The profiler trace."),
        ("path", "VARCHAR", "File of the execution trace."),
        ("schema", "VARCHAR", "Version of its schema."),
        ("method", "VARCHAR", "record_function_id, external_id, order, or none."),
        ("n_nodes", "BIGINT", "Operators and annotations of the execution trace."),
        ("n_operators", "BIGINT", "Operators (cpu_op) of the profiler trace."),
        ("n_joined", "BIGINT", "Those of them with a node."),
        ("n_edges", "BIGINT", "Rows of execution_edges."),
    ),
)
def create_tables(con: duckdb.DuckDBPyConnection) -> None:
    """Create the tables that `con` does not have yet, without rows."""
    for table in TABLES:
        create_table(con, table, "TABLE IF NOT EXISTS")
