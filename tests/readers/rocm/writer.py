"""Writer that converts a Kineto trace to the database that rocprofv3 would write for the same run.

It follows the public schema, not a real file. It omits data that rocprofiler-sdk does not record: Python frames,
arguments of operators, the targets of waits. Names of tables and columns are from rocpd_tables.sql of rocprofiler-sdk
(schema version 3), and their contents follow its generateRocpd.cpp.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

GUID = "0000ddb5-8903-7903-b269-cd8d3745bb8a"
_ID = '"id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT'
_NUMBERS = {
    "rocpd_metadata": (),
    "rocpd_string": (),
    "rocpd_info_node": ("hash",),
    "rocpd_info_process": ("nid", "ppid", "pid", "init", "fini", "start", "end"),
    "rocpd_info_thread": ("nid", "ppid", "pid", "tid", "start", "end"),
    "rocpd_info_agent": ("nid", "pid", "absolute_index", "logical_index", "type_index", "uuid"),
    "rocpd_info_queue": ("nid", "pid"),
    "rocpd_info_stream": ("nid", "pid"),
    "rocpd_info_kernel_symbol": ("nid", "pid", "code_object_id", "sgpr_count", "arch_vgpr_count", "accum_vgpr_count"),
    "rocpd_track": ("nid", "pid", "tid", "name_id"),
    "rocpd_event": ("category_id", "stack_id", "parent_stack_id", "correlation_id"),
    "rocpd_arg": ("event_id", "position"),
    "rocpd_pmc_event": ("event_id", "pmc_id", "value"),
    "rocpd_region": ("nid", "pid", "tid", "start", "end", "name_id", "event_id"),
    "rocpd_sample": ("track_id", "timestamp", "event_id"),
    "rocpd_kernel_dispatch": (
        "nid", "pid", "tid", "agent_id", "kernel_id", "dispatch_id", "queue_id", "stream_id", "start", "end",
        "private_segment_size", "group_segment_size", "workgroup_size_x", "workgroup_size_y", "workgroup_size_z",
        "grid_size_x", "grid_size_y", "grid_size_z", "region_name_id", "event_id",
    ),
    "rocpd_memory_copy": (
        "nid", "pid", "tid", "start", "end", "name_id", "dst_agent_id", "dst_address", "src_agent_id", "src_address",
        "size", "queue_id", "stream_id", "region_name_id", "event_id",
    ),
    "rocpd_memory_allocate": ("nid", "pid", "tid", "start", "end", "agent_id", "address", "size", "event_id"),
}  # fmt: skip
_TEXTS = {
    "rocpd_metadata": ("tag", "value"),
    "rocpd_string": ("string",),
    "rocpd_info_node": ("machine_id", "hostname"),
    "rocpd_info_process": ("command", "environment", "extdata"),
    "rocpd_info_thread": ("name", "extdata"),
    "rocpd_info_agent": ("type", "name", "product_name", "extdata"),
    "rocpd_info_queue": ("name",),
    "rocpd_info_stream": ("name",),
    "rocpd_info_kernel_symbol": ("kernel_name", "display_name"),
    "rocpd_event": ("call_stack", "line_info", "extdata"),
    "rocpd_arg": ("type", "name", "value"),
}
COLUMNS = {table: (*_NUMBERS[table], *_TEXTS.get(table, ())) for table in _NUMBERS}
"""Table → its columns except id and guid, as far as a reader uses them."""
CPU, GPU = 0, 4  # agent numbers as on a machine with four sockets


@dataclass
class Database:
    """The rows of one process's set of tables."""

    pid: int
    guid: str = GUID
    rows: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    strings: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, int] = field(default_factory=dict)
    threads: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for tag, value in (("schema_version", "3"), ("uuid", self.end), ("guid", self.guid)):
            self.add("rocpd_metadata", tag=tag, value=value)
        self.add("rocpd_info_node", hash=7, machine_id="m7", hostname="node7")
        self.add("rocpd_info_process", id=self.pid, nid=1, pid=self.pid, command="python train.py")
        self.agent(CPU, "CPU", 0, "EPYC", {})

    @property
    def end(self) -> str:
        return "_" + self.guid.replace("-", "_")

    def add(self, table: str, **values: Any) -> int:
        """Add a row, and return its id."""
        self.rows[table].append({"id": values.get("id", len(self.rows[table]) + 1), **values})
        return self.rows[table][-1]["id"]

    def agent(self, number: int, kind: str, index: int, name: str, details: Mapping[str, Any]) -> None:
        self.add(
            "rocpd_info_agent", id=number, nid=1, pid=self.pid, type=kind, absolute_index=number, type_index=index,
            product_name=name, extdata=json.dumps(details),
        )  # fmt: skip

    def text(self, value: str) -> int:
        """Return the number of a text, which gets a new number if it has none."""
        return self.strings.setdefault(value, len(self.strings) + 1)

    def event(self, domain: str, correlation: int, message: str | None = None) -> int:
        return self.add(
            "rocpd_event", category_id=self.text(domain), stack_id=correlation, parent_stack_id=correlation,
            correlation_id=0, extdata="{}" if message is None else json.dumps({"message": message}),
        )  # fmt: skip

    def thread(self, tid: int, name: str | None = None) -> int:
        if tid not in self.threads:
            self.threads.add(tid)
            self.add("rocpd_info_thread", id=tid, nid=1, pid=self.pid, tid=tid, name=name)
        return tid

    def call(
        self, name: str, start: int, end: int, correlation: int, tid: int, domain: str = "HIP_RUNTIME_API_EXT"
    ) -> None:
        self.region(name, start, end, tid, self.event(domain, correlation), domain)

    def marker(
        self, message: str, start: int, end: int, correlation: int, tid: int, name: str = "roctxThreadRangeA"
    ) -> None:
        domain = "MARKER_CORE_RANGE_API"
        self.region(name, start, end, tid, self.event(domain, correlation, message), domain)

    def region(self, name: str, start: int, end: int, tid: int, event: int, domain: str) -> None:
        """Add a call or range, or a sample if it took no time."""
        where = {"nid": 1, "pid": self.pid, "tid": self.thread(tid)}
        if start != end:
            self.add("rocpd_region", **where, start=start, end=end, name_id=self.text(name), event_id=event)
            return
        wanted = {**where, "name_id": self.text(domain)}
        track_ids = (row["id"] for row in self.rows["rocpd_track"] if wanted.items() <= row.items())
        track = next(track_ids, None) or self.add("rocpd_track", **wanted)
        self.add("rocpd_sample", track_id=track, timestamp=start, event_id=event)

    def dispatch(
        self, name: str, start: int, end: int, correlation: int, stream: int, tid: int, agent: int = GPU,
        grid: tuple[int, ...] = (1, 1, 1), block: tuple[int, ...] = (64, 1, 1), queue: int = 1,
    ) -> None:  # fmt: skip
        if name not in self.kernels:
            self.kernels[name] = self.add(
                "rocpd_info_kernel_symbol", nid=1, pid=self.pid, code_object_id=1, display_name=name,
                kernel_name=f"_Z{len(name)}{name}.kd", arch_vgpr_count=32,
            )  # fmt: skip
        number = len(self.rows["rocpd_kernel_dispatch"]) + 1
        self.add(
            "rocpd_kernel_dispatch", nid=1, pid=self.pid, tid=self.thread(tid), agent_id=agent,
            kernel_id=self.kernels[name], dispatch_id=number, queue_id=queue, stream_id=stream, start=start, end=end,
            private_segment_size=0, group_segment_size=512, region_name_id=self.text(""),
            event_id=self.event("KERNEL_DISPATCH", correlation),
            **{f"workgroup_size_{axis}": n for axis, n in zip("xyz", block, strict=True)},
            **{f"grid_size_{axis}": n * m for axis, n, m in zip("xyz", grid, block, strict=True)},
        )  # fmt: skip

    def copy(
        self, direction: str, start: int, end: int, correlation: int, stream: int, tid: int, size: int | None,
        agents: tuple[int, int],
    ) -> None:  # fmt: skip
        self.add(
            "rocpd_memory_copy", nid=1, pid=self.pid, tid=self.thread(tid), start=start, end=end, size=size,
            name_id=self.text(f"MEMORY_COPY_{direction}"), src_agent_id=agents[0], dst_agent_id=agents[1],
            stream_id=stream, event_id=self.event("MEMORY_COPY", correlation),
        )  # fmt: skip

    def write(self, path: Path, beside: tuple[Database, ...] = ()) -> Path:
        """Write the database and those of other processes, as `rocpd merge` does.

        Each table has a view over all sets.
        """
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as con:
            for database in (self, *beside):
                database._write(con, _ID)
            for table in COLUMNS:
                parts = " UNION ALL ".join(f'SELECT * FROM "{table}{database.end}"' for database in (self, *beside))
                con.execute(f'CREATE VIEW "{table}" AS {parts}')
            con.execute("CREATE VIEW kernels AS SELECT * FROM rocpd_kernel_dispatch")
            con.commit()
        return path

    def write_plainly(self, path: Path) -> Path:
        """Write the database without keys and views, so that tests can change the tables freely."""
        with closing(sqlite3.connect(path)) as con:
            self._write(con, '"id" INTEGER, "guid" TEXT')
            con.commit()
        return path

    def _write(self, con: sqlite3.Connection, keys: str) -> None:
        rows = {**self.rows, "rocpd_string": [{"id": n, "string": text} for text, n in self.strings.items()]}
        for table, columns in COLUMNS.items():
            kinds = ", ".join(f'"{name}" {"TEXT" if name in _TEXTS.get(table, ()) else "INTEGER"}' for name in columns)
            con.execute(f'CREATE TABLE "{table}{self.end}" ({keys}{", " if kinds else ""}{kinds})')
            names = ("id", "guid", *columns)
            con.executemany(
                f'INSERT INTO "{table}{self.end}" VALUES ({", ".join("?" * len(names))})',
                ([{"guid": self.guid, **row}.get(name) for name in names] for row in rows.get(table, ())),
            )


_HIP = {"cudaLaunchKernel": "hipLaunchKernel", "cudaLaunchKernelExC": "hipExtLaunchKernel"}
_DIRECTIONS = {"HtoD": "HOST_TO_DEVICE", "DtoH": "DEVICE_TO_HOST", "DtoD": "DEVICE_TO_DEVICE"}
_SIDES = {"HtoD": ("Host", "Device"), "DtoH": ("Device", "Host"), "DtoD": ("Device", "Device")}


def as_on_amd(document: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite the trace as Kineto writes it on AMD GPUs: HIP calls, no wait records, and a kernel for each memset."""
    events = []
    for event in document["traceEvents"]:
        cat, name = event.get("cat"), event.get("name", "")
        if cat == "cuda_sync" or event["ph"] in ("s", "f"):
            continue
        if cat in ("cuda_runtime", "cuda_driver"):
            name = _HIP.get(name, name.replace("cuda", "hip", 1) if name.startswith("cuda") else f"hip{name[2:]}")
            event = {**event, "cat": "cuda_runtime", "name": name}
        elif cat == "gpu_memcpy":
            kind = name.split()[1]
            event = {**event, "name": f"Memcpy {kind} ({' -> '.join(_SIDES[kind])})"}
        elif cat == "gpu_memset":
            event = {**event, "cat": "kernel", "name": "__amd_rocclr_fillBufferAligned"}
            event["args"] = {key: value for key, value in event["args"].items() if key != "bytes"}
        events.append(event)
    return {**document, "traceEvents": events}


def database_of(document: Mapping[str, Any], guid: str = GUID) -> Database:
    """Return the database that rocprofv3 would write for the run of a Kineto trace (`as_on_amd`)."""
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    pid = next(e["pid"] for e in events if e.get("cat") == "cuda_runtime")
    base = int(document.get("baseTimeNanoseconds") or 0)
    database = Database(int(pid), guid)
    for device in document.get("deviceProperties", ()):
        details = {"cu_count": device.get("numSms"), "wave_front_size": 64}
        database.agent(GPU + device["id"], "GPU", device["id"], device["name"], details)
    for event in document["traceEvents"]:
        if event.get("name") == "thread_name" and event["pid"] == pid and isinstance(event["tid"], int):
            database.thread(event["tid"], event["args"]["name"])
    for number, event in enumerate(events, 1):
        _add(database, event, base, 1_000_000_000 + number)
    return database


def _add(database: Database, event: Mapping[str, Any], base: int, number: int) -> None:
    start = round(Decimal(event["ts"]) * 1000) + base
    times = (start, start + round(Decimal(event["dur"]) * 1000))
    args, cat, name = event.get("args", {}), event.get("cat"), event["name"]
    if cat == "cuda_runtime":
        database.call(name, *times, args["correlation"], int(event["tid"]))
    elif cat == "cpu_op":
        database.marker(f"{name}, op_id = {args.get('External id', 1)}", *times, number, int(event["tid"]))
    elif cat == "user_annotation":
        database.marker(name, *times, number, int(event["tid"]))
    elif cat in ("kernel", "gpu_memcpy"):
        where = (*times, args["correlation"], args["stream"], database.pid)
        agent = GPU + args["device"]
        if cat == "kernel":
            database.dispatch(
                name, *where, agent, tuple(args.get("grid", (1, 1, 1))), tuple(args.get("block", (1, 1, 1)))
            )
        else:
            kind = name.split()[1]
            agents = {"HtoD": (CPU, agent), "DtoH": (agent, CPU), "DtoD": (agent, agent)}[kind]
            database.copy(_DIRECTIONS[kind], *where, args.get("bytes"), agents)
