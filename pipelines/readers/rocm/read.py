"""Input for rocpd databases of rocprofv3, with one trace per process with GPU work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.foreign_text import visible
from pipelines.readers.events_by_sql import NAME_A_PROCESS, Contents, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import ReadRequest
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.origin import BY_DEVICE
from pipelines.readers.ranks import Rank, from_environment, of_all, unread_rows
from pipelines.readers.rocm.schema import ABOUT, COPIES, DISPATCHES, LEFT_OUT, PREFIX, REGIONS, SAMPLES, TRACKS, sets_of
from pipelines.readers.rocm.stage import create_tables, finish, stage_database
from pipelines.readers.sqlite_exports.open_export import Exported, column, has_table_like, is_sqlite, opened

_AGAIN = "profile again (`rocprofv3 --sys-trace --output-format rocpd -- …`)"
_SHOWN = 8  # names in a sentence
_FEW = 4096  # agents that are read at most


@dataclass(frozen=True)
class Process:
    """A process of a database.

    `end`: suffix of the names of its tables. `row`: its id in the table of processes, None if the database has no
    process with GPU work. `pid`: the operating system's process id, None if it is unknown.
    """

    end: str
    row: int | None
    pid: int | None


def recognise(path: Path) -> bool:
    """Return whether `path` is a SQLite database with tables of AMD's profilers."""
    return is_sqlite(path) and has_table_like(path, PREFIX)


def processes(path: Path, limits: Limits) -> list[str]:
    """Return the names (process ids) of the traces of a database with several traces, else [].

    A name also has the table suffix and the row number if the process id is not unique.
    """
    with opened(path, limits.max_event_mib, _AGAIN) as export:
        gpu = gpu_processes(export)
    return list(_named(gpu)) if len(gpu) > 1 else []


def stage(con: duckdb.DuckDBPyConnection, request: ReadRequest) -> Contents:
    """Fill the tables that `_rocm_events.sql` reads from the process named by `part`, or from the only process.

    Return the trace's metadata and findings. Raise TraceRejected.
    """
    part = request.part
    with opened(request.path, request.limits.max_event_mib, _AGAIN) as export:
        gpu = gpu_processes(export)
        if part is None and len(gpu) > 1:
            message = f"{len(gpu)} processes with GPU work: {', '.join(list(_named(gpu))[:_SHOWN])}"
            raise export.rejected(f"{message}; {NAME_A_PROCESS}")
        process = _named(gpu)[part] if part is not None else next(iter(gpu), _without_work(export))
        create_tables(con, process.pid)
        findings = stage_database(con, export, process.end, process.row)
        findings += [*_left_out(export, process.end), *_marks_of_no_thread(export, process.end)]
        # stage_database() already has a finding per table for rows without a time.
        doubts = (finding for finding in finish(con) if finding.check_name != "rocm_without_time")
        findings += [*_others(gpu), *_in_no_trace(export, process, gpu), *doubts]
        about = _metadata(export, process)
        if rank := ranks_of(export, gpu).get(process) if len(gpu) > 1 else _of_environment(export, process):
            about["distributedInfo"] = {**rank.as_distributed_info(), "one_clock": _of_one_machine(export, gpu)}
            findings.append(rank.finding("rocm"))
        return Contents("sqlite/rocpd", about, "ok", tuple(findings))


def gpu_processes(export: Exported) -> list[Process]:
    """Return the processes with GPU work, ordered by table set and row.

    Raise TraceRejected if the file is not a rocpd database.
    """
    gpu = []
    for suffix in _sets(export):
        pids = _system_numbers(export, suffix)
        rows: set[int] = set()
        for table in (DISPATCHES + suffix, COPIES + suffix):
            if "pid" in export.columns(table):
                query = f"SELECT DISTINCT pid FROM {column(table)} WHERE typeof(pid) = 'integer'"
                rows |= {row for (row,) in export.rows(table, query)}
        gpu += [Process(suffix, row, pids.get(row, row)) for row in sorted(rows)]
    return gpu


def _sets(export: Exported) -> list[str]:
    if suffixes := sets_of(export.tables):
        return suffixes
    present = ", ".join(sorted(export.tables)[:_SHOWN])
    if "rocpd_api" in export.tables:
        raise export.rejected(
            "a database of rocmProfileData (rpd), whose tables are others than rocprofv3's: it is not read; " + _AGAIN
        )
    raise export.rejected(
        f"a rocpd database without {DISPATCHES}, {COPIES} and {REGIONS}: it has {visible(present)}; {_AGAIN}"
    )


def _without_work(export: Exported) -> Process:
    """Return the first table set as a process without GPU work. Its pid is None if the set has several processes."""
    end = _sets(export)[0]
    pids = _system_numbers(export, end).values()
    return Process(end, None, next(iter(pids)) if len(pids) == 1 else None)


def _system_numbers(export: Exported, end: str) -> dict[int, int]:
    table = f"rocpd_info_process{end}"
    if not {"id", "pid"} <= export.columns(table):
        return {}
    query = f"SELECT id, pid FROM {column(table)} WHERE typeof(id) = 'integer' AND typeof(pid) = 'integer'"
    return dict(export.rows(table, query))


def _named(gpu: list[Process]) -> dict[str, Process]:
    """Return the processes by the unique names of their traces."""
    pids = [process.pid for process in gpu]
    return {
        str(process.pid) if pids.count(process.pid) == 1 else f"{process.pid}{process.end}.{process.row}": process
        for process in gpu
    }


def _left_out(export: Exported, end: str) -> Iterator[Finding]:
    names = [name for name in LEFT_OUT if export.has(name + end)]
    if names:
        yield Finding("rocm_tables_left_out", "info", len(names), f"tables that are not read: {', '.join(names)}")


def _marks_of_no_thread(export: Exported, end: str) -> Iterator[Finding]:
    """Yield a finding about marks in no trace, because the track that identifies their process is missing."""
    marks, tracks = SAMPLES + end, TRACKS + end
    if "track_id" in export.columns(marks) and "id" in export.columns(tracks):
        owned = " AND typeof(pid) = 'integer'" if "pid" in export.columns(tracks) else ""
        track_ids = f"SELECT id FROM {column(tracks)} WHERE id IS NOT NULL{owned}"
        query = f"SELECT count(*) FROM {column(marks)} WHERE track_id IS NULL OR track_id NOT IN ({track_ids})"
        ((n,),) = export.rows(marks, query)
        if n:
            yield Finding("rocm_no_track", "warning", n, f"{marks}: marks of threads that {tracks} lacks are left out")


def _others(gpu: list[Process]) -> Iterator[Finding]:
    if len(gpu) > 1:
        message = f"the file holds {len(gpu)} processes with GPU work, each a separate trace: "
        yield Finding("rocm_processes", "info", len(gpu), message + ", ".join(list(_named(gpu))[:_SHOWN]))


def _in_no_trace(export: Exported, process: Process, gpu: list[Process]) -> Iterator[Finding]:
    """Return findings about rows in no trace: rows of processes without GPU work, and rows without a process.

    Such rows in other table sets with GPU work are reported with the traces of these sets. Without any process with GPU
    work, all rows of the set that is read belong to the trace.
    """
    owners = {(owner.end, owner.row) for owner in gpu}
    idle_sets = [end for end in _sets(export) if end not in ({owner.end for owner in gpu} or {process.end})]
    counts: Counter[tuple[str, int | None]] = Counter()
    for end in [*idle_sets, process.end] if gpu else idle_sets:
        for table in (DISPATCHES + end, COPIES + end, REGIONS + end):
            if "pid" in export.columns(table):
                owner = "CASE typeof(pid) WHEN 'integer' THEN pid END"
                rows = export.rows(table, f"SELECT {owner}, count(*) FROM {column(table)} GROUP BY 1")
                counts.update({(end, row): n for row, n in rows})
    n_without_process = sum(n for (_, row), n in counts.items() if row is None)
    n_idle = sum(n for (end, row), n in counts.items() if row is not None and (end, row) not in owners)
    return unread_rows("rocm", n_idle, n_without_process)


def _metadata(export: Exported, process: Process) -> dict[str, Any]:
    """Return deviceProperties, host_name and rocpd (schema version and process id), each without missing values."""
    node, _, about = (name + process.end for name in ABOUT)
    host = _first(export, node, "hostname")
    version = None
    if {"tag", "value"} <= export.columns(about):
        query = f"SELECT value FROM {column(about)} WHERE tag = 'schema_version' AND typeof(value) = 'text'"
        version = next((value for (value,) in export.rows(about, query)), None)
    tool_facts = {"schema_version": version, "process_id": process.pid}
    metadata = {
        "deviceProperties": _devices(export, process),
        "host_name": host,
        "rocpd": {key: value for key, value in tool_facts.items() if value is not None},
    }
    return {key: value for key, value in metadata.items() if value}


def ranks_of(export: Exported, processes: list[Process]) -> dict[Process, Rank]:
    """Return the rank of each process, or {} if the ranks are unknown or not unique.

    Ranks come from the processes' environment. Otherwise, if each process ran kernels on exactly one GPU, all on one
    machine, the rank is the GPU's number.
    """
    if ranks := of_all({process: _of_environment(export, process) for process in processes}):
        return ranks
    if not _of_one_machine(export, processes):
        return {}
    gpus = {process: _gpus(export, process) for process in processes}
    return of_all(
        {process: Rank(*numbers, None, BY_DEVICE) if len(numbers) == 1 else None for process, numbers in gpus.items()}
    )


def _of_environment(export: Exported, process: Process) -> Rank | None:
    table = f"rocpd_info_process{process.end}"
    if process.row is None or not {"id", "environment"} <= export.columns(table):
        return None
    query = f"SELECT environment FROM {column(table)} WHERE id = ? AND typeof(environment) = 'text' LIMIT 1"
    for (text,) in export.rows(table, query, (process.row,)):
        try:
            environment = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return from_environment(environment) if isinstance(environment, dict) else None
    return None


def _of_one_machine(export: Exported, gpu: list[Process]) -> bool:
    """Return whether all processes ran on the same machine, by its machine_id. Return False if one is unknown.

    Each set of tables has the processes of one machine.
    """
    nodes = {process.end: _first(export, ABOUT[0] + process.end, "machine_id") for process in gpu}
    return None not in nodes.values() and len(set(nodes.values())) == 1


def _gpus(export: Exported, process: Process) -> tuple[int, ...]:
    """Return the numbers (type_index) of at most two GPUs on which a process ran kernels, or () if one is unknown."""
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
    """Return one dictionary per GPU: its number, its name, and properties from the agent's JSON."""
    table = f"rocpd_info_agent{process.end}"
    if not {"type", "type_index", "product_name"} <= (present := export.columns(table)):
        return []
    details = "extdata" if "extdata" in present else "NULL"
    query = f"SELECT type_index, product_name, {details} FROM {column(table)} WHERE type = 'GPU' LIMIT {_FEW}"
    devices = {}
    for number, name, text in export.rows(table, query):
        if isinstance(number, int) and isinstance(name, str):
            devices[number] = {"id": number, "name": name, **_sizes(text)}
    return [devices[number] for number in sorted(devices)]


def _sizes(text: object) -> dict[str, int]:
    try:
        properties = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    names = {"numSms": "cu_count", "warpSize": "wave_front_size", "maxThreadsPerBlock": "workgroup_max_size"}
    values = {name: properties.get(key) for name, key in names.items()} if isinstance(properties, dict) else {}
    return {name: value for name, value in values.items() if isinstance(value, int)}


INPUT = EventInput(
    suffixes=(".db", ".rpd", ".sqlite", ".sqlite3"),
    recognise=recognise,
    read=events_by_sql("_rocm_events", stage),
    parts=processes,
)
