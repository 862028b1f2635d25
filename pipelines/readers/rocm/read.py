"""The input: rocpd databases of rocprofv3, one trace for each process with GPU work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.foreign_text import visible
from pipelines.readers.events_by_sql import Contents, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import KnownTrace, ReadTrace
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.origin import BY_DEVICE
from pipelines.readers.ranks import Rank, of_all, of_environment
from pipelines.readers.rocm.schema import ABOUT, COPIES, DISPATCHES, LEFT_OUT, PREFIX, REGIONS, SAMPLES, TRACKS, sets_of
from pipelines.readers.rocm.stage import create_tables, finish, stage_database
from pipelines.readers.sqlite_exports.opened import Exported, column, has_table_like, is_sqlite, opened

_AGAIN = "profile again (`rocprofv3 --sys-trace --output-format rocpd -- …`)"
_SHOWN = 8  # names in a sentence
_FEW = 4096  # agents: more are not of this world


@dataclass(frozen=True)
class Process:
    """A process of a database. `end`: of the names of its tables; `row`: its number there; `pid`: the system's number."""

    end: str
    row: int | None
    pid: int | None


def recognise(path: Path) -> bool:
    """Whether it is a SQLite database with tables of AMD's profilers."""
    return is_sqlite(path) and has_table_like(path, PREFIX)


def processes(path: Path) -> list[str]:
    """Returns names of the traces of a database that holds several: process ids, with the end of the tables' names where
    several sets have one; [] for a file that is one trace, or none.
    """
    with opened(path, Limits.of_environment().max_event_mib, _AGAIN) as export:
        found = gpu_processes(export)
    return list(_named(found)) if len(found) > 1 else []


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
    """Read one process of a database: the one named by `part`, or the only one. See EventInput.read.

    Raises TraceRejected, or OSError.
    """
    limits = limits or Limits.of_environment()
    staged = partial(stage, max_text_mib=limits.max_event_mib, part=part)
    return events_by_sql("_rocm_events", staged)(path, folder, batch_id, known, on_bytes, lean, limits, part)


def stage(con: duckdb.DuckDBPyConnection, path: Path, max_text_mib: int, part: str | None) -> Contents:
    """Fill the tables that `_rocm_events.sql` reads. Raises TraceRejected."""
    with opened(path, max_text_mib, _AGAIN) as export:
        found = gpu_processes(export)
        if part is None and len(found) > 1:
            raise export.rejected(
                f"{len(found)} processes with GPU work: {', '.join(list(_named(found))[:_SHOWN])}; each is a trace of its own: "
                "name one (--process PID), or `tracelake ingest` the file"
            )
        process = (
            _named(found)[part] if part is not None else next(iter(found), Process(_first_set(export), None, None))
        )
        create_tables(con, process.pid)
        findings = stage_database(con, export, process.end, process.row)
        told = "times count from the start of the machine: ranks on several machines have no common clock"
        findings.append(Finding("rocm_no_wall_clock", "info", 1, told))
        findings += [*_left_out(export, process.end), *_marks_of_no_thread(export, process.end)]
        # Rows without a time were told by table.
        doubts = (one for one in finish(con) if one.check_name != "rocm_without_time")
        findings += [*_others(found), *_in_no_trace(export, process.end, found), *doubts]
        about = _metadata(export, process)
        if len(found) > 1 and (rank := ranks_of(export, found).get(process)):
            about["distributedInfo"] = {**rank.told(), "one_clock": _of_one_machine(export, found)}
            findings.append(rank.finding("rocm"))
        return Contents("sqlite/rocpd", about, "ok", tuple(findings))


def gpu_processes(export: Exported) -> list[Process]:
    """Returns the processes with GPU work, by table set and number. Raises TraceRejected if it is no such database."""
    found = []
    for end in _sets(export):
        pids = _system_numbers(export, end)
        rows: set[int] = set()
        for table in (DISPATCHES + end, COPIES + end):
            if "pid" in export.columns(table):
                query = f"SELECT DISTINCT pid FROM {column(table)} WHERE typeof(pid) = 'integer'"
                rows |= {row for (row,) in export.rows(table, query)}
        found += [Process(end, row, pids.get(row, row)) for row in sorted(rows)]
    return found


def _sets(export: Exported) -> list[str]:
    if ends := sets_of(export.tables):
        return ends
    there = ", ".join(sorted(export.tables)[:_SHOWN])
    if "rocpd_api" in export.tables:
        raise export.rejected(
            "a database of rocmProfileData (rpd), whose tables are others than rocprofv3's: it is not read; " + _AGAIN
        )
    raise export.rejected(
        f"a rocpd database without {DISPATCHES}, {COPIES} and {REGIONS}: it has {visible(there)}; {_AGAIN}"
    )


def _first_set(export: Exported) -> str:
    return _sets(export)[0]


def _system_numbers(export: Exported, end: str) -> dict[int, int]:
    table = f"rocpd_info_process{end}"
    if not {"id", "pid"} <= export.columns(table):
        return {}
    query = f"SELECT id, pid FROM {column(table)} WHERE typeof(id) = 'integer' AND typeof(pid) = 'integer'"
    return dict(export.rows(table, query))


def _named(found: list[Process]) -> dict[str, Process]:
    """The processes by names that tell them apart."""
    pids = [process.pid for process in found]
    return {
        str(process.pid) if pids.count(process.pid) == 1 else f"{process.pid}{process.end}.{process.row}": process
        for process in found
    }


def _left_out(export: Exported, end: str) -> Iterator[Finding]:
    names = [name for name in LEFT_OUT if export.has(name + end)]
    if names:
        yield Finding("rocm_tables_left_out", "info", len(names), f"tables that are not read: {', '.join(names)}")


def _marks_of_no_thread(export: Exported, end: str) -> Iterator[Finding]:
    """Marks belong to a process by their track: those whose track is not there are in no trace."""
    marks, tracks = SAMPLES + end, TRACKS + end
    if "track_id" in export.columns(marks) and "id" in export.columns(tracks):
        owned = " AND typeof(pid) = 'integer'" if "pid" in export.columns(tracks) else ""
        known = f"SELECT id FROM {column(tracks)} WHERE id IS NOT NULL{owned}"
        query = f"SELECT count(*) FROM {column(marks)} WHERE track_id IS NULL OR track_id NOT IN ({known})"
        ((n,),) = export.rows(marks, query)
        if n:
            yield Finding("rocm_no_track", "warning", n, f"{marks}: marks of threads that {tracks} lacks are left out")


def _others(found: list[Process]) -> Iterator[Finding]:
    if len(found) > 1:
        told = f"the file holds {len(found)} processes with GPU work, each a trace of its own: "
        yield Finding("rocm_processes", "info", len(found), told + ", ".join(list(_named(found))[:_SHOWN]))


def _in_no_trace(export: Exported, end: str, found: list[Process]) -> Iterator[Finding]:
    """Rows that no process with GPU work has: those of other processes, and those of none. Without one, all are read."""
    rows = {process.row for process in found if process.end == end}
    counts: Counter[int | None] = Counter()
    for table in (DISPATCHES + end, COPIES + end, REGIONS + end) if rows else ():
        if "pid" in export.columns(table):
            whose = "CASE typeof(pid) WHEN 'integer' THEN pid END"
            counts.update(dict(export.rows(table, f"SELECT {whose}, count(*) FROM {column(table)} GROUP BY 1")))
    if nobodys := counts.pop(None, 0):
        told = "rows that do not say which process they belong to are left out"
        yield Finding("rocm_no_process", "warning", nobodys, told)
    if others := sum(n for row, n in counts.items() if row not in rows):
        yield Finding("rocm_idle_processes", "info", others, "rows of processes without GPU work are left out")


def _metadata(export: Exported, process: Process) -> dict[str, Any]:
    """Returns deviceProperties, host_name, and what is the tool's own (rocpd); without what the database does not say."""
    node, _, about = (name + process.end for name in ABOUT)
    host = _first(export, node, "hostname")
    version = None
    if {"tag", "value"} <= export.columns(about):
        query = f"SELECT value FROM {column(about)} WHERE tag = 'schema_version' AND typeof(value) = 'text'"
        version = next((value for (value,) in export.rows(about, query)), None)
    own = {"schema_version": version, "process_id": process.pid}
    found = {
        "deviceProperties": _devices(export, process),
        "host_name": host,
        "rocpd": {key: value for key, value in own.items() if value is not None},
    }
    return {key: value for key, value in found.items() if value}


def ranks_of(export: Exported, found: list[Process]) -> dict[Process, Rank]:
    """Returns the rank of each process, by its environment, else where each of one machine worked on one GPU of its own, by the
    GPU's number; {} where nothing tells them all apart.
    """
    if told := of_all({process: _of_environment(export, process) for process in found}):
        return told
    if not _of_one_machine(export, found):
        return {}
    gpus = {process: _gpus(export, process) for process in found}
    return of_all(
        {one: Rank(*numbers, None, BY_DEVICE) if len(numbers) == 1 else None for one, numbers in gpus.items()}
    )


def _of_environment(export: Exported, process: Process) -> Rank | None:
    table = f"rocpd_info_process{process.end}"
    if process.row is None or not {"id", "environment"} <= export.columns(table):
        return None
    query = f"SELECT environment FROM {column(table)} WHERE id = ? AND typeof(environment) = 'text' LIMIT 1"
    for (text,) in export.rows(table, query, (process.row,)):
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return of_environment(said) if isinstance(said, dict) else None
    return None


def _of_one_machine(export: Exported, found: list[Process]) -> bool:
    """Whether all processes ran on one machine that is known; a set of tables has those of one."""
    nodes = {process.end: _first(export, ABOUT[0] + process.end, "machine_id") for process in found}
    return None not in nodes.values() and len(set(nodes.values())) == 1


def _gpus(export: Exported, process: Process) -> tuple[int, ...]:
    """The numbers of the GPUs on which a process ran kernels, as the system numbers them: not more than two are told."""
    agents, work = f"rocpd_info_agent{process.end}", DISPATCHES + process.end
    if not {"id", "type", "type_index"} <= export.columns(agents) or not {"pid", "agent_id"} <= export.columns(work):
        return ()
    query = (
        f"SELECT DISTINCT CASE WHEN a.type = 'GPU' AND typeof(a.type_index) = 'integer' THEN a.type_index END "
        f"FROM {column(work)} AS w LEFT JOIN {column(agents)} AS a ON a.id = w.agent_id WHERE w.pid = ? LIMIT 2"
    )
    numbers = tuple(number for (number,) in export.rows(work, query, (process.row,)))
    return () if any(not isinstance(number, int) or number < 0 for number in numbers) else numbers


def _first(export: Exported, table: str, name: str) -> str | None:
    if name not in export.columns(table):
        return None
    query = f"SELECT {column(name)} FROM {column(table)} WHERE typeof({column(name)}) = 'text' LIMIT 1"
    return next((value for (value,) in export.rows(table, query) if value), None)


def _devices(export: Exported, process: Process) -> list[dict[str, Any]]:
    """One per GPU: number and name, and what the agent's JSON says of it under rocprofiler-sdk's names."""
    table = f"rocpd_info_agent{process.end}"
    if not {"type", "type_index", "product_name"} <= (there := export.columns(table)):
        return []
    details = "extdata" if "extdata" in there else "NULL"
    query = f"SELECT type_index, product_name, {details} FROM {column(table)} WHERE type = 'GPU' LIMIT {_FEW}"
    devices = {}
    for number, name, text in export.rows(table, query):
        if isinstance(number, int) and isinstance(name, str):
            devices[number] = {"id": number, "name": name, **_sizes(text)}
    return [devices[number] for number in sorted(devices)]


def _sizes(text: object) -> dict[str, int]:
    try:
        said = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    names = {"numSms": "cu_count", "warpSize": "wave_front_size", "maxThreadsPerBlock": "workgroup_max_size"}
    found = {ours: said.get(theirs) for ours, theirs in names.items()} if isinstance(said, dict) else {}
    return {name: value for name, value in found.items() if isinstance(value, int)}


INPUT = EventInput(suffixes=(".db", ".rpd", ".sqlite", ".sqlite3"), recognise=recognise, read=read, parts=processes)
