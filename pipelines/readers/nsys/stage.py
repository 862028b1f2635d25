"""Copy of an export's tables in DuckDB, under the names that `sql/ingest/nsys/_nsys_events.sql` reads."""

from __future__ import annotations

import duckdb

from pipelines.models.python_tables import create_table, input_table, insert_rows
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.nsys.export_metadata import device_numbers
from pipelines.readers.nsys.schema import ENUMS, STRINGS, sources_in
from pipelines.readers.sqlite_exports.open_export import Exported, column
from pipelines.readers.sqlite_exports.ranges import stage_range_texts
from pipelines.readers.sqlite_exports.sources import integer_or_null, stage_source, text_or_null

_TABLES = (
    "_nsys_strings", "_nsys_enum_names", "_nsys_work", "_nsys_calls", "_nsys_waits", "_nsys_event_records", "_nsys_ranges",
    "_nsys_thread_names", "_nsys_samples", "_nsys_metric_names", "_nsys_devices",
)  # fmt: skip
_STRINGS = (("id", "BIGINT", "Number of the text."), ("value", "VARCHAR", "The text."))
_ENUM_NAMES = (
    ("enum", "VARCHAR", "Table of the export."),
    ("id", "BIGINT", "Number in this export."),
    ("symbol", "VARCHAR", "Its name."),
)
_WORK = (
    ("source", "VARCHAR", "Table of the export."),
    ("start_ns", "BIGINT", "Start, ns since the session's start."),
    ("end_ns", "BIGINT", "End, ns."),
    ("device", "BIGINT", "CUDA device of the process."),
    ("context", "BIGINT", "CUDA context."),
    ("stream", "BIGINT", "Stream."),
    ("correlation", "BIGINT", "Correlation id."),
    ("name_id", "BIGINT", "Name with template arguments, in _nsys_strings."),
    ("short_name_id", "BIGINT", "Name without them."),
    ("graph_node", "BIGINT", "Node of the CUDA graph."),
    ("graph", "BIGINT", "CUDA graph."),
    ("registers", "BIGINT", "Registers per thread."),
    ("static_shared_bytes", "BIGINT", "Static shared memory."),
    ("dynamic_shared_bytes", "BIGINT", "Dynamic shared memory."),
    ("grid_x", "BIGINT", "Blocks, X."),
    ("grid_y", "BIGINT", "Blocks, Y."),
    ("grid_z", "BIGINT", "Blocks, Z."),
    ("block_x", "BIGINT", "Threads, X."),
    ("block_y", "BIGINT", "Threads, Y."),
    ("block_z", "BIGINT", "Threads, Z."),
    ("bytes", "BIGINT", "Bytes copied or set."),
    ("copy_kind", "BIGINT", "Direction of a copy."),
    ("source_memory", "BIGINT", "Kind of memory copied from."),
    ("target_memory", "BIGINT", "Kind of memory copied to, or set."),
)
_CALLS = (
    ("start_ns", "BIGINT", "Start, ns since the session's start."),
    ("end_ns", "BIGINT", "End, ns."),
    ("thread", "BIGINT", "Serialized process and thread."),
    ("correlation", "BIGINT", "Correlation id."),
    ("name_id", "BIGINT", "Name, in _nsys_strings."),
)
_WAITS = (
    ("start_ns", "BIGINT", "Start, ns since the session's start."),
    ("end_ns", "BIGINT", "End, ns."),
    ("device", "BIGINT", "CUDA device of the process."),
    ("context", "BIGINT", "CUDA context."),
    ("stream", "BIGINT", "Stream; 2^32 - 1 for none."),
    ("correlation", "BIGINT", "Correlation id."),
    ("sync_type", "BIGINT", "Kind of wait."),
    ("cuda_event", "BIGINT", "CUDA event waited for; 2^32 - 1 for none."),
    ("event_sync", "BIGINT", "Which record of that event; 0 for unknown."),
)
_EVENT_RECORDS = (
    ("context", "BIGINT", "CUDA context."),
    ("stream", "BIGINT", "Stream."),
    ("correlation", "BIGINT", "Correlation id of the record call."),
    ("cuda_event", "BIGINT", "CUDA event."),
    ("event_sync", "BIGINT", "Number of this record; 0 for unknown."),
)
_RANGES = (
    ("start_ns", "BIGINT", "Start, ns since the session's start."),
    ("end_ns", "BIGINT", "End, ns; NULL for marks and for ranges that were open at the end."),
    ("event_type", "BIGINT", "Range, mark, …"),
    ("thread", "BIGINT", "Serialized process and thread."),
    ("end_thread", "BIGINT", "The same where the range ended; NULL if unknown."),
    ("text", "VARCHAR", "Name, if it is not a registered one."),
    ("text_id", "BIGINT", "Registered name, in _nsys_strings."),
    ("domain", "BIGINT", "NVTX domain."),
)
_THREAD_NAMES = (
    ("thread", "BIGINT", "Serialized process and thread."),
    ("name_id", "BIGINT", "Name, in _nsys_strings."),
)
_SAMPLES = (
    ("start_ns", "BIGINT", "When, ns since the session's start."),
    ("type_id", "BIGINT", "What was sampled; its lowest 8 bits are the GPU's number."),
    ("metric", "BIGINT", "Metric, in _nsys_metric_names."),
    ("value", "BIGINT", "Its value."),
)
_METRIC_NAMES = (
    ("type_id", "BIGINT", "What was sampled."),
    ("metric", "BIGINT", "Metric."),
    ("name", "VARCHAR", "Its name, with its unit in brackets."),
)
_DEVICES = (
    ("device", "BIGINT", "CUDA device of the process."),
    ("gpu", "BIGINT", "Number of the GPU."),
)


@input_table("_nsys_strings", layer="ingest", doc="One row: a text of the export.", columns=_STRINGS)
@input_table("_nsys_enum_names", layer="ingest", doc="One row: a number that has a name there.", columns=_ENUM_NAMES)
@input_table("_nsys_work", layer="ingest", doc="One row: a GPU activity.", columns=_WORK)
@input_table("_nsys_calls", layer="ingest", doc="One row: a CUDA call.", columns=_CALLS)
@input_table("_nsys_waits", layer="ingest", doc="One row: a wait for GPU work.", columns=_WAITS)
@input_table("_nsys_event_records", layer="ingest", doc="One row: a record of a CUDA event.", columns=_EVENT_RECORDS)
@input_table("_nsys_ranges", layer="ingest", doc="One row: an NVTX range or mark.", columns=_RANGES)
@input_table("_nsys_thread_names", layer="ingest", doc="One row: a thread that has a name.", columns=_THREAD_NAMES)
@input_table("_nsys_samples", layer="ingest", doc="One row: a sample of a metric of a GPU.", columns=_SAMPLES)
@input_table("_nsys_metric_names", layer="ingest", doc="One row: a metric of a GPU.", columns=_METRIC_NAMES)
@input_table("_nsys_devices", layer="ingest", doc="One row: a CUDA device and its GPU.", columns=_DEVICES)
def stage_tables(con: duckdb.DuckDBPyConnection, export: Exported, process: int | None) -> list[Finding]:
    """Create the tables and fill them with the rows of one process (None: all rows). Return findings."""
    for table in _TABLES:
        create_table(con, table)
    _stage_strings(con, export)
    insert_rows(con, "_nsys_devices", (device_numbers(export, process) or {}).items())
    findings = [
        finding
        for source in sources_in(export.tables)
        for finding in stage_source(con, "nsys", export, source, process)
    ]
    stage_range_texts(con, "_nsys_range_texts")
    return findings


def _stage_strings(con: duckdb.DuckDBPyConnection, export: Exported) -> None:
    if {"id", "value"} <= export.columns(STRINGS):
        export.check_unique(STRINGS, "id")
        query = f"SELECT {integer_or_null('id')}, {text_or_null('value')} FROM {column(STRINGS)}"
        for chunk in export.chunks(STRINGS, query):
            insert_rows(con, "_nsys_strings", chunk)
    for enum in ENUMS:
        if {"id", "name"} <= export.columns(enum):
            export.check_unique(enum, "id")
            rows = export.rows(enum, f"SELECT {integer_or_null('id')}, {text_or_null('name')} FROM {column(enum)}")
            insert_rows(con, "_nsys_enum_names", [(enum, *row) for row in rows])
