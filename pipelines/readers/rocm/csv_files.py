"""Staging of rocprofv3's CSV files. The files of one process are in one folder and have the same prefix.

    1234_kernel_trace.csv  1234_hip_api_trace.csv  1234_memory_copy_trace.csv  1234_marker_api_trace.csv
    1234_agent_info.csv

Columns are identified by name, because releases add and move columns (generateCSV.cpp of rocprofiler-sdk), and `rocpd
convert` spells a few differently. DuckDB reads the files in parts. It skips and counts lines that it cannot read.
"""

from __future__ import annotations

import csv
import glob
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.base.foreign_text import visible
from pipelines.base.paths import UnusablePath, path_text, utf8_path
from pipelines.models.sqltext import first_line, quoted
from pipelines.readers.kineto import TraceRejected
from pipelines.readers.kineto.reading_result import Finding

AGENTS = "agent_info.csv"
_PIECE = 1 << 20
_LONGEST_LINE_MIB = 8  # the buffer in memory has twice this size
_INTEGER = "TRY_CAST({} AS BIGINT)"
_AGENT = "TRY_CAST(regexp_extract({}, '([0-9]+)$', 1) AS BIGINT)"  # 2, Agent 2 or GPU 0
_TEXT = "{}"
_TO_TELL_APART = {"launch_thread", "pid"}  # distinguish the processes of a file; most files have one
_ON_GPU = {
    "start_ns": "start_timestamp",
    "end_ns": "end_timestamp",
    "stream": "stream_id",
    "launch_thread": "thread_id",
    "correlation": "correlation_id",
}


@dataclass(frozen=True)
class Kind:
    """Files whose names have the same suffix.

    `staged`: the table that the files fill. `columns`: column of this table → column names of the file in lower case,
    of which the first existing column is read. `needed`: columns of the table whose absence is a warning. `values`: SQL
    for a column that is not an integer. `work`: kind of GPU work in the rows, empty for calls.
    """

    staged: str
    columns: Mapping[str, tuple[str, ...]]
    needed: frozenset[str]
    values: Mapping[str, str]
    work: str = ""


_KERNELS = Kind(
    "_rocm_work",
    {
        **{column: (name,) for column, name in _ON_GPU.items()},
        "agent": ("agent_id",), "queue": ("queue_id",), "name": ("kernel_name",),
        "group_bytes": ("lds_block_size", "group_segment_size"), "registers": ("vgpr_count",),
        **{f"grid_{axis}": (f"grid_size_{axis}",) for axis in "xyz"},
        **{f"block_{axis}": (f"workgroup_size_{axis}",) for axis in "xyz"},
    },
    frozenset({"start_ns", "end_ns", "correlation", "agent", "name"}),
    {"agent": _AGENT, "name": _TEXT},
    "kernel",
)  # fmt: skip
_COPIES = Kind(
    "_rocm_work",
    {
        **{column: (name,) for column, name in _ON_GPU.items()},
        "agent": ("source_agent_id",), "target_agent": ("destination_agent_id",), "name": ("direction",),
    },
    frozenset({"start_ns", "end_ns", "correlation", "agent", "target_agent", "name"}),
    {"agent": _AGENT, "target_agent": _AGENT, "name": _TEXT},
    "copy",
)  # fmt: skip
_CALLS = Kind(
    "_rocm_calls",
    {
        "start_ns": ("start_timestamp",), "end_ns": ("end_timestamp",), "thread": ("thread_id",), "pid": ("process_id",),
        "correlation": ("correlation_id",), "domain": ("domain",), "name": ("function",),
    },
    frozenset({"start_ns", "end_ns", "thread", "correlation", "domain", "name"}),
    {"domain": _TEXT, "name": _TEXT},
)  # fmt: skip
KINDS = {
    "kernel_trace.csv": _KERNELS,
    "memory_copy_trace.csv": _COPIES,
    **dict.fromkeys(
        (
            "hip_api_trace.csv", "hip_trace.csv", "marker_api_trace.csv", "marker_trace.csv", "hsa_api_trace.csv",
            "hsa_trace.csv", "rccl_api_trace.csv", "rccl_trace.csv",
        ),
        _CALLS,
    ),
}  # fmt: skip
"""Suffix of the file name → kind of file. A process's first file in this order represents all of its files."""


def beside(path: Path) -> list[Path]:
    """Return the files of the same process, including `path`, in the order of KINDS."""
    suffix = next((suffix for suffix in (*KINDS, AGENTS) if path.name.endswith(suffix)), None)
    if suffix is None:
        return [path]
    prefix = path.name.removesuffix(suffix)
    candidates = [path.with_name(prefix + other) for other in (*KINDS, AGENTS)]
    return [file for file in candidates if file.is_file()]


def header(path: Path) -> list[str]:
    """Return the column names of a CSV file in lower case, or [] if its first line is not CSV.

    Raise OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        line = file.readline(1 << 16)
    try:
        return [name.strip().lower() for name in next(csv.reader([line.decode("utf-8-sig")]), [])]
    except (UnicodeDecodeError, csv.Error):
        return []


def stage_file(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> list[Finding]:
    """Append a file's rows to the table of its kind. Return findings about missing or wrong data.

    Raise TraceRejected if DuckDB cannot read the file.
    """
    kind = next(kind for suffix, kind in KINDS.items() if path.name.endswith(suffix))
    names = _names(path)
    columns = {
        column: next((name for name in candidates if name in names), None)
        for column, candidates in kind.columns.items()
    }
    chosen = {
        column: kind.values.get(column, _INTEGER).format(_named(name)) for column, name in columns.items() if name
    }
    if not chosen:
        return list(_missing(path, kind, columns))
    source = _read(con, path, names, max_line_mib)
    constant = f"{quoted(kind.work)} AS source, " if kind.work else ""
    listed = ", ".join(f"{value} AS {column}" for column, value in chosen.items())
    n_wrong = " + ".join(
        f"count(*) FILTER ({_named(str(columns[column]))} <> '' AND ({value}) IS NULL)"
        for column, value in chosen.items()
    )
    with _readable(path):
        inserted = con.execute(f"INSERT INTO {kind.staged} BY NAME SELECT {constant}{listed} FROM {source}").fetchall()
        findings = [*_broken_lines(con, path, source, names, inserted[0][0]), *_missing(path, kind, columns)]
        (n,) = con.execute(f"SELECT {n_wrong} FROM {source}").fetchall()[0]
    if n:
        message = f"{path_text(path.name)}: values that are not of their column's type became NULL"
        findings.append(Finding("rocm_wrong_type", "error", n, message))
    return findings


def stage_agents(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> list[Finding]:
    """Fill `_rocm_agents`.

    Return findings about missing or wrong data. Raise TraceRejected if DuckDB cannot read the file.

    An agent's number is logical_node_id, which the program sees (rocprofv3's default, relative), else node_id.
    """
    names = _names(path)
    number = next((name for name in ("logical_node_id", "node_id") if name in names), None)
    if number is None or "agent_type" not in names:
        message = f"{path_text(path.name)} has no node_id or no agent_type: devices have the numbers of agents, among which CPUs count"
        return [Finding("rocm_missing_column", "warning", 1, message)]
    source = _read(con, path, names, max_line_mib)
    with _readable(path):
        inserted = con.execute(
            f"INSERT INTO _rocm_agents BY NAME SELECT {_INTEGER.format(_named(number))} AS id, agent_type AS kind "
            f"FROM {source}"
        ).fetchall()
        return list(_broken_lines(con, path, source, names, inserted[0][0]))


def processes_of(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> set[int]:
    """Return the process ids in a file of calls, or an empty set if the file has no such column.

    Raise TraceRejected if DuckDB cannot read the file.
    """
    if "process_id" not in (names := _names(path)):
        return set()
    source = _read(con, path, names, max_line_mib)
    with _readable(path):
        rows = con.execute(f"SELECT DISTINCT {_INTEGER.format('process_id')} AS pid FROM {source}").fetchall()
    return {pid for (pid,) in rows if pid is not None}


def is_by_kind(con: duckdb.DuckDBPyConnection, path: Path, max_line_mib: int) -> bool:
    """Return whether GPU work names its agent by kind (GPU 0). The number is then the number of the device.

    rocprofv3 writes agents by kind with --agent-index=type-relative. Raise TraceRejected if DuckDB cannot read the
    file.
    """
    if "agent_id" not in (names := _names(path)):
        return False
    source = _read(con, path, names, max_line_mib)
    with _readable(path):
        return bool(con.execute(f"SELECT 1 FROM {source} WHERE agent_id LIKE 'GPU%' LIMIT 1").fetchall())


def _names(path: Path) -> list[str]:
    # A trailing comma adds a column without a name.
    names = [name or f"column {position}" for position, name in enumerate(header(path), 1)]
    if not names or len(set(names)) != len(names):
        raise TraceRejected(path, 0, "line 1 does not name the columns of a CSV file: profile or copy it again")
    return names


def _read(con: duckdb.DuckDBPyConnection, path: Path, names: list[str], max_line_mib: int) -> str:
    _check_name(path)
    con.execute("DROP TABLE IF EXISTS _csv_errors; DROP TABLE IF EXISTS _csv_scans")
    line = min(max_line_mib, _LONGEST_LINE_MIB) << 20
    columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({quoted(path)}, columns = {{{columns}}}, auto_detect = false, header = true, delim = ',', quote = '\"', "
        f"escape = '\"', max_line_size = {line}, buffer_size = {2 * line}, store_rejects = true, rejects_table = '_csv_errors', "
        "rejects_scan = '_csv_scans', rejects_limit = 0, hive_partitioning = false)"
    )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise TraceRejected with the file and the likely cause if DuckDB raises an error.

    DuckDB fails at some stray quotes and line ends instead of skipping them.
    """
    try:
        yield
    except duckdb.Error as error:
        reason = first_line(error).rstrip(".")
        message = (
            f"DuckDB cannot read it as CSV, as after a stray quote or line end: {reason}; profile or copy it again"
        )
        raise TraceRejected(path, None, f"{path_text(path.name)}: {message}") from None


def _check_name(path: Path) -> None:
    """Raise TraceRejected if DuckDB would read the name as a pattern, or cannot open it."""
    try:
        utf8_path(path)
    except UnusablePath as error:
        raise TraceRejected(path, None, str(error)) from None
    if glob.has_magic(str(path)):
        raise TraceRejected(path, None, "its path has one of the characters * ? [: rename it")


def _broken_lines(
    con: duckdb.DuckDBPyConnection, path: Path, source: str, names: list[str], n_rows: int
) -> Iterator[Finding]:
    """Yield a finding about the lines of the file that produced none of its `n_rows` rows.

    A stray quote joins all lines up to the next quote, and DuckDB stores only the first kilobytes of the result. The
    number of skipped lines is therefore the number of lines in the file minus the lines that were read.
    """
    n, first = con.execute("SELECT count(DISTINCT line), min(line) FROM _csv_errors").fetchall()[0]
    # DuckDB reports no error if a stray quote in the first line includes all other lines.
    missing = _lines(path) - 1 - n_rows
    if n or missing > 0:
        n_line_ends = " + ".join(
            f"coalesce(length({name}) - length(replace({name}, chr(10), '')), 0)" for name in map(_named, names)
        )
        (within,) = con.execute(f"SELECT coalesce(sum({n_line_ends}), 0) FROM {source}").fetchall()[0]
        n_skipped = max(n, missing - within)
        position = f"the first is line {first}" if n else "a stray quote before them is likely"
        message = f"{path_text(path.name)}: lines that do not match the first line are skipped, {position}"
        if n_skipped:
            yield Finding("rocm_broken_line", "error", n_skipped, message)


def _lines(path: Path) -> int:
    """Return the number of lines that are not blank."""
    n, at_line_start = 0, True
    with path.open("rb") as file:
        while piece := file.readline(_PIECE):
            n += at_line_start and not piece.isspace()
            at_line_start = piece.endswith(b"\n")
    return n


def _missing(path: Path, kind: Kind, columns: Mapping[str, str | None]) -> Iterator[Finding]:
    absent = {column for column, name in columns.items() if name is None}
    for severity, names in (("warning", absent & kind.needed), ("info", absent - kind.needed - _TO_TELL_APART)):
        if names:
            listed = ", ".join(sorted(kind.columns[name][0] for name in names))
            message = f"{visible(path_text(path.name))} has no {listed}: NULL"
            yield Finding("rocm_missing_column", severity, len(names), message)


def _named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
