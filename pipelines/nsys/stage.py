"""The tables of an export → the same rows in DuckDB, under the names that `sql/ingest/_nsys_events.sql` reads.

Columns that an export lacks, and values of a type that the schema does not have, become NULL, and a finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import duckdb

from pipelines.models.python_tables import create_table, given_table, types_of
from pipelines.nsys.exported import Exported, column
from pipelines.nsys.schema import ENUMS, SOURCES, STRINGS, TEXTS, Source
from pipelines.traces.record import Finding

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES = (
    "_nsys_strings", "_nsys_enum_names", "_nsys_work", "_nsys_calls", "_nsys_waits", "_nsys_event_records", "_nsys_ranges",
    "_nsys_thread_names",
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
    ("sync_type", "BIGINT", "What waits for what."),
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
    ("end_thread", "BIGINT", "The same where the range ended; NULL where that is not told."),
    ("text", "VARCHAR", "Name, if it is not a registered one."),
    ("text_id", "BIGINT", "Registered name, in _nsys_strings."),
    ("domain", "BIGINT", "NVTX domain."),
)
_THREAD_NAMES = (
    ("thread", "BIGINT", "Serialized process and thread."),
    ("name_id", "BIGINT", "Name, in _nsys_strings."),
)


@given_table("_nsys_strings", layer="ingest", doc="One row: a text of the export.", columns=_STRINGS)
@given_table("_nsys_enum_names", layer="ingest", doc="One row: a number that has a name there.", columns=_ENUM_NAMES)
@given_table("_nsys_work", layer="ingest", doc="One row: a piece of GPU work.", columns=_WORK)
@given_table("_nsys_calls", layer="ingest", doc="One row: a CUDA call.", columns=_CALLS)
@given_table("_nsys_waits", layer="ingest", doc="One row: a wait for GPU work.", columns=_WAITS)
@given_table("_nsys_event_records", layer="ingest", doc="One row: a record of a CUDA event.", columns=_EVENT_RECORDS)
@given_table("_nsys_ranges", layer="ingest", doc="One row: an NVTX range or mark.", columns=_RANGES)
@given_table("_nsys_thread_names", layer="ingest", doc="One row: a thread that has a name.", columns=_THREAD_NAMES)
def stage_tables(con: duckdb.DuckDBPyConnection, export: Exported, process: int | None) -> list[Finding]:
    """Create and fill the tables with the rows of one process (None: all rows); returns what is missing or wrong."""
    for table in _TABLES:
        create_table(con, table)
    findings = _stage_strings(con, export)
    for source in SOURCES:
        findings += _stage_source(con, export, source, process)
    return findings


def _stage_strings(con: duckdb.DuckDBPyConnection, export: Exported) -> list[Finding]:
    if {"id", "value"} <= export.columns(STRINGS):
        query = f"SELECT {_integer('id')}, {_string('value')} FROM {column(STRINGS)}"
        _insert(con, "_nsys_strings", ("id", "value"), export.chunks(STRINGS, query))
    for enum in ENUMS:
        if {"id", "name"} <= export.columns(enum):
            rows = export.rows(enum, f"SELECT {_integer('id')}, {_string('name')} FROM {column(enum)}")
            _insert(con, "_nsys_enum_names", ("enum", "id", "symbol"), [[(enum, *row) for row in rows]])
    return []


def _stage_source(
    con: duckdb.DuckDBPyConnection, export: Exported, source: Source, process: int | None
) -> list[Finding]:
    there = export.columns(source.name)
    if not there:
        about = f"{source.name}: {source.about}"
        return [Finding("nsys_missing_table", "warning", 1, about)] if source.about else []
    columns = {ours: theirs for ours, theirs in source.columns.items() if theirs in there}
    where, values = _of_process(source, there, process)
    selected = [(_string if ours in TEXTS else _integer)(theirs) for ours, theirs in columns.items()]
    constant = ("source",) if source.is_work else ()
    query = f"SELECT {', '.join(['?'] * len(constant) + selected) or 'NULL'} FROM {column(source.name)}{where}"
    chunks = export.chunks(source.name, query, (*((source.name,) if constant else ()), *values))
    _insert(con, source.staged, (*constant, *columns), chunks if columns else ())
    return [*_missing(source, columns), *_wrong(export, source, columns, where, values)]


def _of_process(source: Source, there: frozenset[str], process: int | None) -> tuple[str, tuple[int, ...]]:
    if process is None or source.process not in there:
        return "", ()
    return f" WHERE {column(source.process or '')} >> 24 = ?", (process,)


def _missing(source: Source, columns: dict[str, str]) -> Iterator[Finding]:
    """Old exports lack new columns, which is worth a note; what every export has is worth a warning."""
    absent = source.columns.keys() - columns.keys()
    for severity, names in (("warning", absent & source.needed), ("info", absent - source.needed)):
        if names:
            listed = ", ".join(sorted(source.columns[name] for name in names))
            told = f"{source.name} has no {listed}: NULL"
            yield Finding("nsys_missing_column", severity, len(names), told)


def _wrong(
    export: Exported, source: Source, columns: dict[str, str], where: str, values: tuple[int, ...]
) -> Iterator[Finding]:
    """Counts values that are neither NULL nor of the column's type, and rows of timed tables that have no time."""
    kinds = [
        f"sum(typeof({column(theirs)}) NOT IN ('null', '{'text' if ours in TEXTS else 'integer'}'))"
        for ours, theirs in columns.items()
    ]
    timed = [column(columns[ours]) for ours in ("start_ns", "end_ns") if ours in columns]
    is_range = source.staged == "_nsys_ranges"  # a mark has no end, and a range may be open
    times = [f"typeof({name}) <> 'integer'" for name in (timed[:1] if is_range else timed)]
    untimed = f"sum({' OR '.join(times)})" if times else "0"
    ((wrong, without),) = export.rows(
        source.name, f"SELECT {' + '.join(kinds) or '0'}, {untimed} FROM {column(source.name)}{where}", values
    )
    if wrong:
        told = f"{source.name}: values that are not of their column's type became NULL"
        yield Finding("nsys_wrong_type", "error", wrong, told)
    if without:
        yield Finding("nsys_without_time", "warning", without, f"{source.name}: rows without a start or an end")


def _insert(
    con: duckdb.DuckDBPyConnection, table: str, columns: tuple[str, ...], chunks: Iterable[list[tuple]]
) -> None:
    for chunk in chunks:
        con.register("_chunk", _arrow(table, columns, chunk))
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM _chunk")
        con.unregister("_chunk")


def _arrow(table: str, columns: tuple[str, ...], rows: list[tuple]) -> pa.Table:
    import pyarrow as pa

    kinds = {"BIGINT": pa.int64(), "VARCHAR": pa.string()}
    types = types_of(table)
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return pa.table({name: pa.array(found, kinds[types[name]]) for name, found in zip(columns, values, strict=True)})


def _integer(name: str) -> str:
    return f"CASE typeof({column(name)}) WHEN 'integer' THEN {column(name)} END"


def _string(name: str) -> str:
    return f"CASE typeof({column(name)}) WHEN 'text' THEN {column(name)} END"
