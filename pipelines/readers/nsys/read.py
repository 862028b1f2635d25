"""Input for exports of Nsight Systems, with one trace for each process with GPU work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text
from pipelines.models.python_tables import create_table, input_table
from pipelines.readers.events_by_sql import NAME_A_PROCESS, Contents, doubts, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import KnownTrace, ReadRequest, ReadTrace, TraceRejected
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.nsys.export_metadata import metadata, session_start_ns
from pipelines.readers.nsys.processes import beside, gpu_processes, of_one_machine, pid_of, which
from pipelines.readers.nsys.ranks import ranks_of
from pipelines.readers.nsys.schema import LEFT_OUT_PREFIXES, READ, STRINGS, sources_in
from pipelines.readers.nsys.stage import stage_tables
from pipelines.readers.ranks import unread_rows
from pipelines.readers.sqlite_exports.open_export import Exported, has_table_like, is_sqlite, opened

_REPORTS = (".nsys-rep", ".qdrep")
_AGAIN = "export the report again (`nsys export --type sqlite REPORT.nsys-rep`)"
_OTHERS = "rocpd_"  # prefix of the tables in SQLite files of AMD's profilers
_SHOWN = 8  # names in a message
_SESSION = (
    ("start_ns", "BIGINT", "Start of the session, ns since 1970; 0 where the export does not say."),
    ("process_id", "BIGINT", "The process; NULL where the export does not say."),
)


def recognise(path: Path) -> bool:
    """Return whether a file is a report of Nsight Systems, or a SQLite database that is not AMD's.

    `stage` rejects databases of other kinds.
    """
    return path.name.endswith(_REPORTS) or (is_sqlite(path) and not has_table_like(path, _OTHERS))


def processes(path: Path, limits: Limits) -> list[str]:
    """Return the names of the traces in an export of several processes, [] for a file with at most one trace.

    The names are process ids. If two processes have the same id, their names are their process keys, which include the
    machine. Raise TraceRejected, or OSError.
    """
    if path.name.endswith(_REPORTS):
        return []
    with opened(path, limits.max_event_mib, _AGAIN) as export:
        keys = gpu_processes(export)
    return list(_named(keys)) if len(keys) > 1 else []


def read(request: ReadRequest) -> ReadTrace | KnownTrace:
    """Read one process of an export: the process named `part`, or the only process. See EventInput.read.

    Raise TraceRejected for a report that is not exported yet, or a file that cannot be ingested. Raise OSError if the
    file cannot be read.
    """
    path = request.path
    if path.name.endswith(_REPORTS):
        message = f"a report of Nsight Systems: run `nsys export --type sqlite {path_text(path.name)}` first"
        raise TraceRejected(path, None, message)
    return events_by_sql("_nsys_events", stage)(request)


@input_table("_nsys_session", layer="ingest", doc="One row: the session.", columns=_SESSION)
def stage(con: duckdb.DuckDBPyConnection, request: ReadRequest) -> Contents:
    """Fill the tables that `_nsys_events.sql` reads. Raise TraceRejected if the export cannot be read."""
    part = request.part
    with opened(request.path, request.limits.max_event_mib, _AGAIN) as export:
        _check(export)
        keys = gpu_processes(export)
        if part is None and len(keys) > 1:
            message = f"{len(keys)} processes with GPU work: {which(export, keys[:_SHOWN])}"
            raise export.rejected(f"{message}; {NAME_A_PROCESS}")
        process = _named(keys)[part] if part is not None else next(iter(keys), None)
        findings = stage_tables(con, export, process)
        session_start = session_start_ns(export)
        if session_start is None:
            message = (
                "TARGET_INFO_SESSION_START_TIME does not record when the session began: times count from its start"
            )
            findings.append(Finding("nsys_no_session_start", "info", 1, message))
        findings += [*_left_out(export), *_others(export, keys)]
        trace_metadata = metadata(export, process)
        if process is not None and (rank := ranks_of(export, keys).get(process)):
            trace_metadata["distributedInfo"] = {**rank.as_distributed_info(), "one_clock": of_one_machine(keys)}
            findings.append(rank.finding("nsys"))
        create_table(con, "_nsys_session")
        con.execute(
            "INSERT INTO _nsys_session VALUES (?, ?)",
            [session_start or 0, None if process is None else pid_of(process)],
        )
        return Contents("sqlite/nsys", trace_metadata, "ok", tuple([*findings, *doubts(con, "_nsys_doubts")]))


def _named(keys: list[int]) -> dict[str, int]:
    """Return process keys by unique name: the process id, or the key if another process has the same id."""
    pids = [pid_of(key) for key in keys]
    return {str(pid if pids.count(pid) == 1 else key): key for pid, key in zip(pids, keys, strict=True)}


def _check(export: Exported) -> None:
    """Raise TraceRejected if the database is not an export of Nsight Systems, or has no table to read."""
    readable = {source.name for source in sources_in(export.tables)} & export.tables
    if not readable or (STRINGS not in export.tables and "META_DATA_EXPORT" not in export.tables):
        tables_text = ", ".join(sorted(export.tables)[:_SHOWN]) or "no tables"
        raise export.rejected(
            f"a SQLite database, but not an export of Nsight Systems with CUDA or NVTX rows: it has {visible(tables_text)}; profile "
            "with `nsys profile --trace=cuda,nvtx`, then `nsys export --type sqlite`"
        )
    if STRINGS not in export.tables:
        raise export.rejected(f"it has no table {STRINGS}, so nothing in it has a name: export the report again")


def _left_out(export: Exported) -> list[Finding]:
    read = READ | {source.name for source in sources_in(export.tables)}
    names = [name for name in sorted(export.tables - read) if name.startswith(LEFT_OUT_PREFIXES) and export.has(name)]
    if not names:
        return []
    more_text = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = f"tables that are not read: {visible(', '.join(names[:_SHOWN]))}{more_text}"
    return [Finding("nsys_tables_left_out", "info", len(names), message)]


def _others(export: Exported, keys: list[int]) -> Iterator[Finding]:
    """Yield the findings about other traces in the file, and about rows that belong to no trace."""
    if len(keys) > 1:
        message = (
            f"the file holds {len(keys)} processes with GPU work, each a separate trace: {which(export, keys[:_SHOWN])}"
        )
        yield Finding("nsys_processes", "info", len(keys), message)
    yield from unread_rows("nsys", *beside(export, keys))


INPUT = EventInput(
    suffixes=(".sqlite", ".sqlite3", ".db", ".nsys-rep", ".qdrep"), recognise=recognise, read=read, parts=processes
)
