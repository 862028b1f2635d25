"""The input: CSV files of rocprofv3. Those of a process are one trace, which is called by the file of kernels."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text
from pipelines.readers.events_by_sql import Contents, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import KnownTrace, ReadTrace, TraceRejected
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.rocm.csv_files import (
    AGENTS,
    KINDS,
    beside,
    header,
    is_by_kind,
    processes_of,
    stage_agents,
    stage_file,
)
from pipelines.readers.rocm.csv_processes import keep, ranks_of, working
from pipelines.readers.rocm.stage import create_tables, finish

_ABOUT = {
    "kernel_trace.csv": "no kernels are known",
    "hip_api_trace.csv": "no HIP calls are known: what launched the GPU work is unknown (--hip-trace)",
    "marker_api_trace.csv": "no ROCTx ranges are known: operators, steps and annotations are unknown (--marker-trace)",
}
_SHOWN = 8
_OTHER_NAMES = {"hip_trace.csv": "hip_api_trace.csv", "marker_trace.csv": "marker_api_trace.csv"}


def recognise(path: Path) -> bool:
    """Whether it is a CSV file of rocprofv3 with times, by its first line."""
    return {"start_timestamp", "end_timestamp"} <= set(header(path))


def read_with(path: Path) -> Path | None:
    """Returns the file that stands for the process whose file this is; None for that one, and for other files."""
    first = next(iter(beside(path)), path)
    return first if first != path and recognise(first) else None


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
    """Read the files of one process, or of `part`, which is one of several. See EventInput.read. Raises TraceRejected, or OSError."""
    if first := read_with(path):
        name = path_text(first.name)
        raise TraceRejected(
            path_text(path), None, f"it is read together with {name}, which lies beside it: give that file"
        )
    limits = limits or Limits.of_environment()
    staged = partial(stage, max_line_mib=limits.max_event_mib, part=part)
    others = [one for one in beside(path) if one != path]
    return events_by_sql("_rocm_events", staged, others)(path, folder, batch_id, known, on_bytes, lean, limits, part)


def processes(path: Path) -> list[str]:
    """Returns the ids of the processes with GPU work of files that hold several, [] for others. Raises TraceRejected."""
    most = Limits.of_environment().max_event_mib
    with database.connect() as con:
        files = _of_rows(path)
        if len({pid for one in files for pid in processes_of(con, one, most)}) < 2:
            return []
        create_tables(con, None)
        for file in files:
            stage_file(con, file, most)
        found = working(con)
    return [str(pid) for pid in found] if len(found) > 1 else []


def stage(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int, part: str | None = None) -> Contents:
    """Fill the tables that `_rocm_events.sql` reads. Raises TraceRejected."""
    files = _of_rows(path)
    pids = {pid for one in files for pid in processes_of(con, one, max_line_mib)}
    create_tables(con, None)
    findings = [one for file in files for one in stage_file(con, file, max_line_mib)]
    findings += _agents(con, path, max_line_mib)
    distributed: dict[str, object] = {}
    if len(pids) > 1:
        found = working(con)
        if part is None and len(found) > 1:
            told = f"{len(found)} processes with GPU work: {', '.join(map(str, found[:_SHOWN]))}; each is a trace of its own"
            raise TraceRejected(
                path_text(path), None, f"{told}: name one (--process PID), or `tracelake ingest` the file"
            )
        pid = int(part) if part is not None else next(iter(found), min(pids))
        if rank := ranks_of(con, _is_by_kind(con, path, max_line_mib)).get(pid) if len(found) > 1 else None:
            distributed = {"distributedInfo": rank.told()}
            findings.append(rank.finding("rocm"))
        findings += keep(con, pid, found)
        pids = {pid}
    for pid in pids:
        con.execute("UPDATE _rocm_session SET process_id = ?", [pid])
    there = {next(end for end in KINDS if file.name.endswith(end)) for file in files}
    there |= {_OTHER_NAMES.get(end, end) for end in there}
    for end, about in _ABOUT.items():
        if end not in there:
            findings.append(Finding("rocm_missing_table", "warning", 1, f"no …{end} lies beside it: {about}"))
    told = "times count from the start of the machine: ranks on several machines have no common clock"
    findings.append(Finding("rocm_no_wall_clock", "info", 1, told))
    findings += finish(con)
    status = "partial" if any(one.check_name == "rocm_broken_line" for one in findings) else "ok"
    own: dict[str, object] = {"files": [path_text(one.name) for one in beside(path)]}
    metadata = {"rocprofv3": own | ({"process_id": next(iter(pids))} if pids else {}), **distributed}
    return Contents("csv/rocprofv3", metadata, status, tuple(findings))


def _of_rows(path: Path) -> list[Path]:
    return [one for one in beside(path) if not one.name.endswith(AGENTS)]


def _is_by_kind(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> bool:
    return path.name.endswith("kernel_trace.csv") and is_by_kind(con, path, max_line_mib)


def _agents(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> list[Finding]:
    if _is_by_kind(con, path, max_line_mib):
        return []
    for one in beside(path):
        if one.name.endswith(AGENTS):
            return stage_agents(con, one, max_line_mib)
    told = f"no …{AGENTS} lies beside it: devices have the numbers of agents, among which CPUs count"
    return [Finding("rocm_agents", "info", 1, told)]


INPUT = EventInput(
    suffixes=(
        "kernel_trace.csv", "memory_copy_trace.csv", "hip_api_trace.csv", "hip_trace.csv", "marker_api_trace.csv",
        "marker_trace.csv", "hsa_api_trace.csv", "hsa_trace.csv", "rccl_api_trace.csv", "rccl_trace.csv", "agent_info.csv",
    ),
    recognise=recognise,
    read=read,
    read_with=read_with,
    parts=processes,
)  # fmt: skip
