"""The input: exports of Nsight Systems, one trace for each process with GPU work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text
from pipelines.models.catalog import load_catalog
from pipelines.models.python_tables import create_table, given_table
from pipelines.models.run import run_models
from pipelines.readers.events_by_sql import Contents, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import KnownTrace, ReadTrace, TraceRejected
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.nsys.about import metadata, session_start_ns
from pipelines.readers.nsys.processes import beside, gpu_processes, of_one_machine, pid_of, which
from pipelines.readers.nsys.ranks import ranks_of
from pipelines.readers.nsys.schema import LEFT_OUT_PREFIXES, READ, STRINGS, sources_in
from pipelines.readers.nsys.stage import stage_tables
from pipelines.readers.sqlite_exports.opened import Exported, has_table_like, is_sqlite, opened

_REPORTS = (".nsys-rep", ".qdrep")
_AGAIN = "export the report again (`nsys export --type sqlite REPORT.nsys-rep`)"
_OTHERS = "rocpd_"  # tables of AMD's profilers, which are SQLite files, too
_SHOWN = 8  # names in a sentence
_SESSION = (
    ("start_ns", "BIGINT", "Start of the session, ns since 1970; 0 where the export does not say."),
    ("process_id", "BIGINT", "The process; NULL where the export does not say."),
)


def recognise(path: Path) -> bool:
    """Whether it is a report of Nsight Systems, or a SQLite database that is not AMD's: what kind of one, reading tells."""
    return path.name.endswith(_REPORTS) or (is_sqlite(path) and not has_table_like(path, _OTHERS))


def processes(path: Path) -> list[str]:
    """Returns names of the traces of an export that holds several: process ids, with the machine in the upper bits where
    two have one id; [] for a file that is one trace, or none.
    """
    if path.name.endswith(_REPORTS):
        return []
    with opened(path, Limits.of_environment().max_event_mib, _AGAIN) as export:
        keys = gpu_processes(export)
    return list(_named(keys)) if len(keys) > 1 else []


def read(
    path: Path,
    folder: Path,
    batch_id: str = "",
    known: Set[str] = frozenset(),
    on_bytes: Callable[[int], Any] | None = None,
    lean: bool = False,
    limits: Limits | None = None,
    part: str | None = None,
) -> ReadTrace | KnownTrace:
    """Read one process of an export: the one named by `part`, or the only one. See EventInput.read.

    Raises TraceRejected, or OSError.
    """
    if path.name.endswith(_REPORTS):
        raise TraceRejected(
            path_text(path),
            None,
            f"a report of Nsight Systems: run `nsys export --type sqlite {path_text(path.name)}` first",
        )
    limits = limits or Limits.of_environment()
    staged = partial(stage, max_text_mib=limits.max_event_mib, part=part)
    return events_by_sql("_nsys_events", staged)(path, folder, batch_id, known, on_bytes, lean, limits, part)


@given_table("_nsys_session", layer="ingest", doc="One row: the session.", columns=_SESSION)
def stage(con: duckdb.DuckDBPyConnection, path: Path, max_text_mib: int, part: str | None) -> Contents:
    """Fill the tables that `_nsys_events.sql` reads. Raises TraceRejected."""
    with opened(path, max_text_mib, _AGAIN) as export:
        _check(export)
        keys = gpu_processes(export)
        if part is None and len(keys) > 1:
            raise export.rejected(
                f"{len(keys)} processes with GPU work: {which(export, keys[:_SHOWN])}; each is a trace of its own: name one "
                "(--process PID), or `tracelake ingest` the file"
            )
        process = _named(keys)[part] if part is not None else next(iter(keys), None)
        findings = stage_tables(con, export, process)
        started = session_start_ns(export)
        if started is None:
            told = "TARGET_INFO_SESSION_START_TIME does not tell when the session began: times count from its start"
            findings.append(Finding("nsys_no_session_start", "info", 1, told))
        findings += [*_left_out(export), *_others(export, keys)]
        about = metadata(export, process)
        if process is not None and (rank := ranks_of(export, keys).get(process)):
            about["distributedInfo"] = {**rank.told(), "one_clock": of_one_machine(keys)}
            findings.append(rank.finding("nsys"))
        create_table(con, "_nsys_session")
        con.execute(
            "INSERT INTO _nsys_session VALUES (?, ?)", [started or 0, None if process is None else pid_of(process)]
        )
        return Contents("sqlite/nsys", about, "ok", tuple([*findings, *_doubts(con)]))


def _named(keys: list[int]) -> dict[str, int]:
    """The processes by names that tell them apart."""
    pids = [pid_of(key) for key in keys]
    return {str(pid if pids.count(pid) == 1 else key): key for pid, key in zip(pids, keys, strict=True)}


def _check(export: Exported) -> None:
    """Reject what is no export, or has nothing to read, saying what it is."""
    read = {source.name for source in sources_in(export.tables)} & export.tables
    if not read or (STRINGS not in export.tables and "META_DATA_EXPORT" not in export.tables):
        there = ", ".join(sorted(export.tables)[:_SHOWN]) or "no tables"
        raise export.rejected(
            f"a SQLite database, but not an export of Nsight Systems with CUDA or NVTX rows: it has {visible(there)}; profile "
            "with `nsys profile --trace=cuda,nvtx`, then `nsys export --type sqlite`"
        )
    if STRINGS not in export.tables:
        raise export.rejected(f"it has no table {STRINGS}, so nothing in it has a name: export the report again")


def _left_out(export: Exported) -> list[Finding]:
    read = READ | {source.name for source in sources_in(export.tables)}
    names = [name for name in sorted(export.tables - read) if name.startswith(LEFT_OUT_PREFIXES) and export.has(name)]
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    told = f"tables that are not read: {visible(', '.join(names[:_SHOWN]))}{more}"
    return [Finding("nsys_tables_left_out", "info", len(names), told)]


def _others(export: Exported, keys: list[int]) -> Iterator[Finding]:
    """What else is in the file: other traces, and rows that are in none."""
    if len(keys) > 1:
        told = f"the file holds {len(keys)} processes with GPU work, each a trace of its own: {which(export, keys[:_SHOWN])}"
        yield Finding("nsys_processes", "info", len(keys), told)
    others, nobodys = beside(export, keys)
    if others:
        yield Finding("nsys_idle_processes", "info", others, "rows of processes without GPU work are left out")
    if nobodys:
        yield Finding(
            "nsys_no_process", "warning", nobodys, "rows that do not say which process they belong to are left out"
        )


def _doubts(con: duckdb.DuckDBPyConnection) -> list[Finding]:
    catalog = load_catalog()
    run_models(con, catalog, ["_nsys_doubts"], frozenset(catalog.given))
    rows = con.execute("SELECT check_name, severity, n, detail FROM _nsys_doubts ORDER BY check_name").fetchall()
    con.execute("DROP TABLE _nsys_doubts")
    return [Finding(*row) for row in rows]


INPUT = EventInput(
    suffixes=(".sqlite", ".sqlite3", ".db", ".nsys-rep", ".qdrep"), recognise=recognise, read=read, parts=processes
)
