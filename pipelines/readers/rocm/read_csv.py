"""Input for CSV files of rocprofv3. The files of a process are one trace, named after its kernel file."""

from __future__ import annotations

from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text
from pipelines.lake.read.views import PARTED
from pipelines.readers.events_by_sql import NAME_A_PROCESS, Contents, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import KnownTrace, ReadRequest, ReadTrace, TraceRejected
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
    """Return whether `path` is a CSV file of rocprofv3 with times, by its first line."""
    return {"start_timestamp", "end_timestamp"} <= set(header(path))


def read_with(path: Path) -> Path | None:
    """Return the file that represents the process of `path`, or None for that file and for files of other kinds."""
    first = next(iter(beside(path)), path)
    return first if first != path and recognise(first) else None


def read(request: ReadRequest) -> ReadTrace | KnownTrace:
    """Read the files of one process, or one process (`part`) of files with several. See EventInput.read.

    Raise TraceRejected, or OSError if a file cannot be read.
    """
    path = request.path
    if first := read_with(path):
        name = path_text(first.name)
        raise TraceRejected(path, None, f"it is read together with {name}, which is next to it: pass that file")
    companions = [file for file in beside(path) if file != path]
    return events_by_sql("_rocm_events", stage, companions)(request)


def processes(path: Path, limits: Limits) -> list[str]:
    """Return the ids of the processes with GPU work if the files have several, else [].

    Raise TraceRejected if DuckDB cannot read a file.
    """
    max_line_mib = limits.max_event_mib
    with database.connect() as con:
        files = _of_rows(path)
        if len({pid for file in files for pid in processes_of(con, file, max_line_mib)}) < 2:
            return []
        create_tables(con, None)
        for file in files:
            stage_file(con, file, max_line_mib)
        gpu_pids = working(con)
    return [str(pid) for pid in gpu_pids] if len(gpu_pids) > 1 else []


def stage(con: duckdb.DuckDBPyConnection, request: ReadRequest) -> Contents:
    """Fill the tables that `_rocm_events.sql` reads, and return the trace's metadata and findings.

    Raise TraceRejected if a file cannot be read.
    """
    path, part, max_line_mib = request.path, request.part, request.limits.max_event_mib
    files = _of_rows(path)
    pids = {pid for file in files for pid in processes_of(con, file, max_line_mib)}
    create_tables(con, None)
    findings = [finding for file in files for finding in stage_file(con, file, max_line_mib)]
    findings += _agents(con, path, max_line_mib)
    distributed: dict[str, object] = {}
    if len(pids) > 1:
        gpu_pids = working(con)
        if part is None and len(gpu_pids) > 1:
            message = f"{len(gpu_pids)} processes with GPU work: {', '.join(map(str, gpu_pids[:_SHOWN]))}"
            raise TraceRejected(path, None, f"{message}; {NAME_A_PROCESS}")
        pid = int(part) if part is not None else next(iter(gpu_pids), min(pids))
        if rank := ranks_of(con, _is_by_kind(con, path, max_line_mib)).get(pid) if len(gpu_pids) > 1 else None:
            distributed = {"distributedInfo": rank.as_distributed_info()}
            findings.append(rank.finding("rocm"))
        findings += keep(con, pid, gpu_pids)
        pids = {pid}
    for pid in pids:
        con.execute("UPDATE _rocm_session SET process_id = ?", [pid])
    suffixes = {next(suffix for suffix in KINDS if file.name.endswith(suffix)) for file in files}
    suffixes |= {_OTHER_NAMES.get(suffix, suffix) for suffix in suffixes}
    for suffix, about in _ABOUT.items():
        if suffix not in suffixes:
            findings.append(Finding("rocm_missing_table", "warning", 1, f"no …{suffix} is next to it: {about}"))
    findings += finish(con)
    status = "partial" if any(finding.check_name == "rocm_broken_line" for finding in findings) else "ok"
    tool_facts: dict[str, object] = {"files": [path_text(file.name) for file in beside(path)]}
    metadata = {"rocprofv3": tool_facts | ({"process_id": next(iter(pids))} if pids else {}), **distributed}
    return Contents(PARTED, metadata, status, tuple(findings))


def _of_rows(path: Path) -> list[Path]:
    return [file for file in beside(path) if not file.name.endswith(AGENTS)]


def _is_by_kind(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> bool:
    return path.name.endswith("kernel_trace.csv") and is_by_kind(con, path, max_line_mib)


def _agents(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> list[Finding]:
    if _is_by_kind(con, path, max_line_mib):
        return []
    for file in beside(path):
        if file.name.endswith(AGENTS):
            return stage_agents(con, file, max_line_mib)
    message = f"no …{AGENTS} is next to it: devices have the numbers of agents, among which CPUs count"
    return [Finding("rocm_agents", "info", 1, message)]


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
