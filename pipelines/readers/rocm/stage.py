"""The staged tables that `sql/ingest/rocm/_rocm_events.sql` reads, and their rows from a rocpd database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from pipelines.models.python_tables import create_table, input_table, insert_rows
from pipelines.readers.events_by_sql import doubts
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.rocm.schema import sources_of
from pipelines.readers.sqlite_exports.open_export import Exported
from pipelines.readers.sqlite_exports.ranges import stage_range_texts
from pipelines.readers.sqlite_exports.sources import stage_source

_TABLES = (
    "_rocm_work", "_rocm_calls", "_rocm_samples", "_rocm_tracks", "_rocm_event_details", "_rocm_strings",
    "_rocm_kernels", "_rocm_agents", "_rocm_threads", "_rocm_session",
)  # fmt: skip
_WORK = (
    ("source", "VARCHAR", "kernel or copy."),
    ("start_ns", "BIGINT", "Start, ns since the machine's start."),
    ("end_ns", "BIGINT", "End, ns."),
    ("agent", "BIGINT", "Agent that it ran on; of a copy, the one copied from."),
    ("target_agent", "BIGINT", "Agent copied to."),
    ("stream", "BIGINT", "HIP stream; 0 is the default one."),
    ("queue", "BIGINT", "Queue of the GPU."),
    ("launch_thread", "BIGINT", "Thread that launched it, where the row has it (CSV)."),
    ("event", "BIGINT", "Row in _rocm_event_details."),
    ("correlation", "BIGINT", "Correlation id, where the row has it (CSV)."),
    ("name", "VARCHAR", "Name of the kernel, or direction, where the row has it (CSV)."),
    ("name_id", "BIGINT", "Direction of a copy, in _rocm_strings."),
    ("kernel", "BIGINT", "Kernel, in _rocm_kernels."),
    ("bytes", "BIGINT", "Bytes copied."),
    ("group_bytes", "BIGINT", "Local memory of a workgroup (LDS)."),
    ("registers", "BIGINT", "Vector registers per thread, where the row has them (CSV)."),
    ("grid_x", "BIGINT", "Threads of the whole grid, X."),
    ("grid_y", "BIGINT", "Threads of the whole grid, Y."),
    ("grid_z", "BIGINT", "Threads of the whole grid, Z."),
    ("block_x", "BIGINT", "Threads of a workgroup, X."),
    ("block_y", "BIGINT", "Threads of a workgroup, Y."),
    ("block_z", "BIGINT", "Threads of a workgroup, Z."),
)
_CALLS = (
    ("start_ns", "BIGINT", "Start, ns since the machine's start."),
    ("end_ns", "BIGINT", "End, ns."),
    ("thread", "BIGINT", "Row in _rocm_threads; in CSV files the system's number."),
    ("event", "BIGINT", "Row in _rocm_event_details."),
    ("correlation", "BIGINT", "Correlation id, where the row has it (CSV)."),
    ("pid", "BIGINT", "Process, where the row has it (CSV)."),
    ("domain", "VARCHAR", "Domain, where the row has it (CSV)."),
    ("name", "VARCHAR", "Function or message, where the row has it (CSV)."),
    ("name_id", "BIGINT", "Function, in _rocm_strings."),
)
_SAMPLES = (
    ("at_ns", "BIGINT", "Time, ns since the machine's start."),
    ("track", "BIGINT", "Row in _rocm_tracks."),
    ("event", "BIGINT", "Row in _rocm_event_details."),
)
_TRACKS = (("id", "BIGINT", "Number of the row."), ("thread", "BIGINT", "Row in _rocm_threads."))
_EVENT_DETAILS = (
    ("id", "BIGINT", "Number of the row."),
    ("domain_id", "BIGINT", "Domain, in _rocm_strings."),
    ("correlation", "BIGINT", "Correlation id that a call shares with the GPU work which it launched."),
    ("details", "VARCHAR", "JSON: the message of a marker."),
)
_STRINGS = (("id", "BIGINT", "Number of the text."), ("value", "VARCHAR", "The text."))
_KERNELS = (
    ("id", "BIGINT", "Number of the kernel."),
    ("display_name", "VARCHAR", "Human-readable name."),
    ("mangled_name", "VARCHAR", "Name in the code object."),
    ("registers", "BIGINT", "Vector registers per thread."),
)
_AGENTS = (
    ("id", "BIGINT", "Number of the agent."),
    ("kind", "VARCHAR", "CPU or GPU."),
    ("type_index", "BIGINT", "Number among those of its kind."),
)
_THREADS = (
    ("id", "BIGINT", "Number of the row."),
    ("thread", "BIGINT", "The system's number."),
    ("name", "VARCHAR", "Name of the thread."),
)
_SESSION = (("process_id", "BIGINT", "The process; NULL if unknown."),)


@input_table("_rocm_work", layer="ingest", doc="One row: a GPU activity.", columns=_WORK)
@input_table("_rocm_calls", layer="ingest", doc="One row: a call or a ROCTx range.", columns=_CALLS)
@input_table("_rocm_samples", layer="ingest", doc="One row: a mark, or a call that took no time.", columns=_SAMPLES)
@input_table("_rocm_tracks", layer="ingest", doc="One row: a thread that has samples.", columns=_TRACKS)
@input_table("_rocm_event_details", layer="ingest", doc="One row: more about one of these.", columns=_EVENT_DETAILS)
@input_table("_rocm_strings", layer="ingest", doc="One row: a text of the database.", columns=_STRINGS)
@input_table("_rocm_kernels", layer="ingest", doc="One row: a kernel.", columns=_KERNELS)
@input_table("_rocm_agents", layer="ingest", doc="One row: a CPU or GPU.", columns=_AGENTS)
@input_table("_rocm_threads", layer="ingest", doc="One row: a thread.", columns=_THREADS)
@input_table("_rocm_session", layer="ingest", doc="One row: the process.", columns=_SESSION)
def create_tables(con: duckdb.DuckDBPyConnection, process_id: int | None) -> None:
    """Create the staged tables, all empty except the row of the process."""
    for table in _TABLES:
        create_table(con, table)
    con.execute("INSERT INTO _rocm_session VALUES (?)", [process_id])


def stage_database(con: duckdb.DuckDBPyConnection, export: Exported, end: str, process: int | None) -> list[Finding]:
    """Fill the tables with one process of the table set `end`. Return findings about missing or wrong data."""
    return [finding for source in sources_of(end) for finding in stage_source(con, "rocm", export, source, process)]


def append_rows(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a staged table by column name. A missing value is NULL. Raise KeyError for an unknown name."""
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    insert_rows(con, table, [[row.get(name) for name in columns] for row in rows], columns)


def finish(con: duckdb.DuckDBPyConnection) -> list[Finding]:
    """Stage the texts of ranges. Return the findings about all rows, and the finding about the clock."""
    stage_range_texts(con, "_rocm_range_texts")
    message = "times count from the start of the machine: ranks on several machines have no common clock"
    return [Finding("rocm_no_wall_clock", "info", 1, message), *doubts(con, "_rocm_doubts")]
