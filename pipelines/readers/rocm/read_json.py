"""Input for rocprofv3's JSON (`…results.json`, also compressed), with one trace per process.

    {"rocprofiler-sdk-tool": [{"metadata": {"pid": …}, "agents": […], "strings": {…}, "kernel_symbols": […],
                               "callback_records": {…}, "buffer_records": {"kernel_dispatch": […], "hip_api": […], …}}]}

It fills the same staged tables as the CSV files. Source: generateJSON.cpp of rocprofiler-sdk, and cxx/serialization.hpp
for the records. Records are read one at a time, so only the names and a batch of rows for DuckDB are in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from pipelines.readers.events_by_sql import NAME_A_PROCESS, Contents, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import ReadRequest, TraceRejected
from pipelines.readers.kineto.reading_result import MEANING, Finding
from pipelines.readers.kineto.source import Source
from pipelines.readers.rocm.stage import append_rows, create_tables, finish
from pipelines.readers.value_stream import ValueStream

TOOL = "rocprofiler-sdk-tool"
_AT_ONCE = 20_000
_BIGGEST = 1 << 63
_HEAD = 1 << 10  # bytes
# Maximum occurrences of these keys in one process: buffer_records has the records, and the names of their kinds.
_MOST_IN_A_PROCESS = {b'"metadata"': 1, b'"buffer_records"': 2}
_LONGEST = max(map(len, _MOST_IN_A_PROCESS)) - 1
_SHOWN = 8  # names in a sentence
_GPU_KINDS = {2: "GPU", 1: "CPU"}
# Functions whose events have the name of their message. ROCm 7 writes ranges as the functions of the last two names.
_MESSAGES = ("roctxMarkA", "roctxRangePushA", "roctxRangeStartA", "roctxThreadRangeA", "roctxProcessRangeA")
_LISTS = {
    ("kernel_symbols",), ("agents",), ("counters",), ("code_objects",), ("host_functions",), ("strings", "marker_api"),
}  # fmt: skip
_RECORDS = ("buffer_records", "callback_records")
_NEEDED = {
    "kernel_dispatch": "no kernels are known (--kernel-trace)",
    "hip_api": "no HIP calls are known: what launched the GPU work is unknown (--hip-trace)",
    "marker_api": "no ROCTx ranges are known: operators, steps and annotations are unknown (--marker-trace)",
}


def recognise(path: Path) -> bool:
    """Return whether `path` is JSON of rocprofv3, by its first key.

    The name does not suffice, because names of Kineto's traces also end in .json.gz.
    """
    head = b""
    for chunk in Source(path).chunks():
        head += chunk[:_HEAD]
        if len(head) >= _HEAD:
            break
    return f'"{TOOL}"'.encode() in head[:_HEAD]


def processes(path: Path) -> list[str]:
    """Return the names of the traces of a file with several processes, else [].

    A name is the process id, or the index in the list if the ids are not unique. Raise TraceRejected if the file is not
    JSON.
    """
    if not _may_hold_several(path):  # a pass without parsing, because few files have several processes
        return []
    pids: list[object] = []
    for where, value in ValueStream(path).walk(_is_streamed):
        if where[:1] == (TOOL,) and len(where) > 1 and isinstance(where[1], int):
            pids += [None] * (where[1] + 1 - len(pids))
            if where[2:] == ("metadata",) and isinstance(value, dict):
                pids[where[1]] = value.get("pid")
    unique_pids = {pid for pid in pids if isinstance(pid, int)}
    names = [str(pid if len(unique_pids) == len(pids) else index) for index, pid in enumerate(pids)]
    return names if len(names) > 1 else []


def _may_hold_several(path: Path) -> bool:
    """Return whether keys of a process occur more often than in a file of one process."""
    counts, overlap = Counter[bytes](), b""
    for piece in Source(path).chunks():
        text = overlap + piece
        for key in _MOST_IN_A_PROCESS:
            counts[key] += text.count(key) - overlap.count(key)
        overlap = text[-_LONGEST:]  # from `text`, because a piece of a compressed file may be shorter than a key
    return any(counts[key] > n for key, n in _MOST_IN_A_PROCESS.items())


def stage(con: duckdb.DuckDBPyConnection, request: ReadRequest) -> Contents:
    """Fill the tables that `_rocm_events.sql` reads from the process named by `part`, or from the only process.

    Return the trace's metadata and findings. Raise TraceRejected.
    """
    path, part = request.path, request.part
    names = processes(path) if part is not None else []
    process_index = names.index(part) if part is not None else 0
    create_tables(con, None)
    rows = _Rows(con)
    stream = ValueStream(path)
    n_processes = 0
    for where, value in stream.walk(_is_streamed):
        if where[:1] != (TOOL,) or len(where) < 2:
            continue
        if not isinstance(where[1], int):
            message = f"{TOOL!r} is not a list of processes. Copy the file or profile again."
            raise TraceRejected(path, None, message)
        n_processes = max(n_processes, where[1] + 1)
        if n_processes > 1 and part is None:
            listed = f" ({', '.join(trace_names[:_SHOWN])})" if (trace_names := processes(path)) else ""
            raise TraceRejected(path, None, f"it holds several processes{listed}, {NAME_A_PROCESS}")
        if where[1] == process_index:
            rows.take(where[2:], value)
    if not n_processes:
        raise TraceRejected(path, None, f"there is nothing in {TOOL!r}: profile again (rocprofv3 --sys-trace)")
    rows.finish()
    findings = [*rows.findings(), *_stream_findings(stream), *finish(con)]
    if names:
        message = f"the file holds {len(names)} processes, each a separate trace: {', '.join(names[:_SHOWN])}"
        findings.append(Finding("rocm_processes", "info", len(names), message))
    metadata: dict[str, object] = {} if rows.pid is None else {"process_id": rows.pid}
    return Contents("json/rocprofv3", {"rocprofv3": metadata}, "repaired" if stream.odd else "ok", tuple(findings))


def _is_streamed(where: tuple[str | int, ...]) -> bool:
    """Return whether the value at `where` is streamed element by element: lists of records and their ancestors."""
    inner = where[2:]
    if len(inner) < 2:
        return not inner or inner[0] in (*_RECORDS, "strings") or inner in _LISTS
    return inner in _LISTS or (len(inner) == 2 and inner[0] in _RECORDS)


class _Rows:
    """The staged rows of one process, and the faults in its records."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.pid: int | None = None
        self.n_wrong, self.first_wrong = 0, ""
        self.left_out: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self._kinds: list[Any] = []
        self._messages: dict[int, str] = {}
        self._gpus = 0
        self._waiting: dict[str, list[dict[str, Any]]] = {}

    def take(self, where: tuple[str | int, ...], value: Any) -> None:
        """Process a value of a process. `where`: the value's path inside the process."""
        match where:
            case ("metadata",) if isinstance(value, dict):
                self.pid = self._integer(value.get("pid"), "metadata.pid")
            case ("strings", "buffer_records") if isinstance(value, list):
                self._kinds = value
            case ("strings", "marker_api", int(), *_) if isinstance(value, dict):
                key = self._integer(value.get("key"), "strings.marker_api")
                if key is not None:
                    self._messages[key] = str(value.get("value"))
            case ("agents", int(number), *_) if isinstance(value, dict):
                self._agent(value, f"agents[{number}]")
            case ("kernel_symbols", int(number), *_) if isinstance(value, dict):
                self._kernel(value, f"kernel_symbols[{number}]")
            case ("buffer_records", str(kind), int(number), *_):
                self._record(kind, value, f"buffer_records.{kind}[{number}]")
            case ("callback_records", str(kind), int(), *_):
                self.left_out[kind] += 1

    def finish(self) -> None:
        """Write the messages, the remaining rows, and the process id."""
        for correlation, message in self._messages.items():
            self._add("_rocm_event_details", id=correlation, details=json.dumps({"message": message}))
        for table in list(self._waiting):
            self._write(table)
        self.con.execute(f"UPDATE _rocm_session SET process_id = {'NULL' if self.pid is None else self.pid}")

    def findings(self) -> list[Finding]:
        """Return the findings about missing tables, wrong values and records that are not read."""
        findings = [
            Finding("rocm_missing_table", "warning", 1, f"no {kind} in buffer_records: {about}")
            for kind, about in _NEEDED.items()
            if not self.seen[kind]
        ]
        if self.n_wrong:
            message = (
                f"values that are not of their type or do not fit 64 bits became NULL, the first at {self.first_wrong}"
            )
            findings.append(Finding("rocm_wrong_type", "error", self.n_wrong, message))
        if self.left_out:
            listed = ", ".join(f"{kind} ({n:,})" for kind, n in islice(sorted(self.left_out.items()), 12))
            findings.append(Finding("rocm_tables_left_out", "info", self.left_out.total(), f"not read: {listed}"))
        return findings

    def _record(self, kind: str, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            self._wrong(where)
        elif kind == "kernel_dispatch":
            self._dispatch(value, where)
        elif kind == "memory_copy":
            self._copy(value, where)
        elif kind.endswith("_api"):
            self._call(value, where)
        else:
            self.left_out[kind] += 1
            return
        self.seen[kind] += 1

    def _times(self, record: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {
            "start_ns": self._integer(record.get("start_timestamp"), f"{where}.start_timestamp"),
            "end_ns": self._integer(record.get("end_timestamp"), f"{where}.end_timestamp"),
            "correlation": self._within(record, where, "correlation_id", "internal"),
        }

    def _dispatch(self, record: Mapping[str, Any], where: str) -> None:
        info = record.get("dispatch_info")
        # Before rocprofiler-sdk 0.5, these fields are in the record itself.
        info = info if isinstance(info, dict) else record
        self._add(
            "_rocm_work",
            source="kernel",
            **self._times(record, where),
            agent=self._within(info, where, "agent_id", "handle"),
            queue=self._within(info, where, "queue_id", "handle"),
            stream=self._within(record, where, "stream_id", "handle"),
            kernel=self._integer(info.get("kernel_id"), f"{where}.kernel_id"),
            group_bytes=self._integer(info.get("group_segment_size"), f"{where}.group_segment_size"),
            **{f"grid_{axis}": self._within(info, where, "grid_size", axis) for axis in "xyz"},
            **{f"block_{axis}": self._within(info, where, "workgroup_size", axis) for axis in "xyz"},
        )

    def _copy(self, record: Mapping[str, Any], where: str) -> None:
        self._add(
            "_rocm_work",
            source="copy",
            **self._times(record, where),
            agent=self._within(record, where, "src_agent_id", "handle"),
            target_agent=self._within(record, where, "dst_agent_id", "handle"),
            stream=self._within(record, where, "stream_id", "handle"),
            name=self._named(record)[1],
            bytes=self._integer(record.get("bytes"), f"{where}.bytes"),
        )

    def _call(self, record: Mapping[str, Any], where: str) -> None:
        times, (domain, name) = self._times(record, where), self._named(record)
        thread = self._integer(record.get("thread_id"), f"{where}.thread_id")
        # Keep the function in addition to the message, because it shows whether a thread or a process owns the range.
        event = times["correlation"] if name in _MESSAGES else None
        self._add("_rocm_calls", **times, thread=thread, event=event, domain=domain, name=name)

    def _named(self, record: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return the names of the domain and of the operation, None for an unknown name."""
        kind, operation = record.get("kind"), record.get("operation")
        kind_names = self._kinds[kind] if isinstance(kind, int) and 0 <= kind < len(self._kinds) else None
        if not isinstance(kind_names, dict):
            return None, None
        operation_names = kind_names.get("operations")
        is_named = (
            isinstance(operation_names, list) and isinstance(operation, int) and 0 <= operation < len(operation_names)
        )
        return str(kind_names.get("kind")), str(operation_names[operation]) if is_named else None  # type: ignore[index]

    def _agent(self, agent: Mapping[str, Any], where: str) -> None:
        kind = agent.get("type")
        index = agent.get("logical_node_type_id", self._gpus if kind == 2 else None)
        self._gpus += kind == 2
        self._add(
            "_rocm_agents",
            id=self._within(agent, where, "id", "handle"),
            kind=_GPU_KINDS.get(kind) if isinstance(kind, int) else None,
            type_index=self._integer(index, f"{where}.logical_node_type_id"),
        )

    def _kernel(self, kernel: Mapping[str, Any], where: str) -> None:
        names = (kernel.get(name) for name in ("formatted_kernel_name", "kernel_name"))
        display, mangled = (name if isinstance(name, str) and name else None for name in names)
        self._add(
            "_rocm_kernels",
            id=self._integer(kernel.get("kernel_id"), f"{where}.kernel_id"),
            display_name=display,
            mangled_name=mangled,
            registers=self._integer(kernel.get("arch_vgpr_count"), f"{where}.arch_vgpr_count"),
        )

    def _within(self, record: Mapping[str, Any], where: str, name: str, part: str) -> int | None:
        value = record.get(name)
        return self._integer(value.get(part) if isinstance(value, dict) else value, f"{where}.{name}")

    def _integer(self, value: Any, where: str) -> int | None:
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and -_BIGGEST <= value < _BIGGEST):
            return value
        self._wrong(where)
        return None

    def _wrong(self, where: str) -> None:
        self.n_wrong += 1
        self.first_wrong = self.first_wrong or where

    def _add(self, table: str, **row: Any) -> None:
        rows = self._waiting.setdefault(table, [])
        rows.append(row)
        if len(rows) >= _AT_ONCE:
            self._write(table)

    def _write(self, table: str) -> None:
        append_rows(self.con, table, self._waiting.pop(table))


def _stream_findings(stream: ValueStream) -> list[Finding]:
    return [Finding(check, "warning", n, MEANING[check]) for check, n in sorted(stream.odd.items())]


INPUT = EventInput(
    suffixes=("results.json", "results.json.gz"),
    recognise=recognise,
    read=events_by_sql("_rocm_events", stage),
    parts=lambda path, _: processes(path),
)
