"""Writer that converts a Kineto trace to what `nsys export --type sqlite` would write for the same run.

It follows the public schema, not a real file. It omits data that Nsight Systems does not record: Python frames,
arguments of operators, copies of annotations on the GPU. Names of tables, columns and enums are from NVIDIA's "SQLite
Schema Reference", release 2026.4 (schema 3.28.1).
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

NONE = 0xFFFFFFFF  # CUPTI's "not applicable" for streams and events
_GPU = ("start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid")
NEW = {
    "StringIds": ("id", "value"),
    "META_DATA_EXPORT": ("name", "value"),
    "PROCESSES": ("globalPid", "pid", "name"),
    "ThreadNames": ("nameId", "priority", "globalTid"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", "utcTime", "localTime", "systemClockNs", "sessionStartCntVctNs"),
    "TARGET_INFO_SYSTEM_ENV": ("globalVid", "devStateName", "name", "nameEnum", "value"),
    "TARGET_INFO_GPU": ("vmId", "id", "name", "totalMemory", "smCount", "computeMajor", "computeMinor", "threadsPerWarp"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid", "uuid", "numMultiprocessors"),
    "ENUM_CUPTI_SYNC_TYPE": ("id", "name", "label"),
    "ENUM_CUDA_MEMCPY_OPER": ("id", "name", "label"),
    "ENUM_CUDA_MEM_KIND": ("id", "name", "label"),
    "ENUM_NSYS_EVENT_TYPE": ("id", "name", "label"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *_GPU, "demangledName", "shortName", "mangledName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX",
        "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId",
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (*_GPU, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId", "copyCount"),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*_GPU, "value", "bytes", "graphNodeId", "memKind"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (*_GPU, "deprecatedSyncType", "syncType", "eventId", "eventSyncId"),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": ("timestamp", *_GPU[2:], "eventId", "eventSyncId"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (*_GPU, "graphId", "graphExecId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId",
    ),
    "NVTX_EVENTS": (
        "start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid", "endGlobalTid", "textId",
        "domainId", "jsonText", "jsonTextId", "binaryData",
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": ("domainId", "schemaId", "idx", "type", "name", "offset"),
    "META_DATA_CAPTURE": ("name", "value"),
    "GPU_METRICS": ("timestamp", "typeId", "metricId", "value"),
    "TARGET_INFO_GPU_METRICS": ("typeId", "sourceId", "typeName", "metricId", "metricName"),
}  # fmt: skip
"""Table → columns of release 2026.4, as far as a reader uses them."""
# Columns that release 2024.6 (schema 3.16.1) does not have.
_SINCE_2024 = {
    "TARGET_INFO_SESSION_START_TIME": ("systemClockNs", "sessionStartCntVctNs"),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("graphId",),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("copyCount",),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ("deprecatedSyncType", "eventSyncId"),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": ("timestamp", "greenContextId", "eventSyncId"),
}
OLD = {table: tuple(c for c in columns if c not in _SINCE_2024.get(table, ())) for table, columns in NEW.items()}
SCHEMAS = {"3.28.1": NEW, "3.16.1": OLD}
SYNCS = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}
COPIES = {
    name: number
    for number, name in enumerate(["HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"], 1)
}
MEMORIES = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4}
_TEXT = {
    "value",
    "name",
    "text",
    "utcTime",
    "localTime",
    "devStateName",
    "uuid",
    "label",
    "jsonText",
    "typeName",
    "metricName",
}
_ENUM_ROWS = {
    "ENUM_CUPTI_SYNC_TYPE": {
        1: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE",
        2: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT",
        3: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE",
        4: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE",
    },
    "ENUM_CUDA_MEMCPY_OPER": {number: f"CUDA_MEMCPY_KIND_{name.upper()}" for name, number in COPIES.items()},
    "ENUM_CUDA_MEM_KIND": {number: f"CUDA_MEMOPR_MEMORY_KIND_{name.upper()}" for name, number in MEMORIES.items()},
    "ENUM_NSYS_EVENT_TYPE": {34: "NvtxMark", 59: "NvtxPushPopRange", 60: "NvtxStartEndRange"},
}


@dataclass
class Export:
    """The rows of an export by table, each with its known columns."""

    rows: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    strings: dict[str, int] = field(default_factory=dict)

    def text(self, value: str) -> int:
        """Return the number of a text, which gets a new number if it has none."""
        return self.strings.setdefault(value, len(self.strings) + 1)

    def add(self, table: str, **values: Any) -> None:
        self.rows[table].append(values)

    def write(self, path: Path, schema: Mapping[str, Iterable[str]] = NEW) -> Path:
        """Write the tables that have rows, as `nsys export` does."""
        tables = {**self.rows, "StringIds": [{"id": n, "value": text} for text, n in self.strings.items()]}
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as con:
            for table, rows in tables.items():
                columns = list(schema.get(table, ()))
                if not columns:
                    continue
                texts = _TEXT - ({"value"} if table == "GPU_METRICS" else set())
                kinds = ", ".join(f'"{name}" {"TEXT" if name in texts else "INTEGER"}' for name in columns)
                con.execute(f'CREATE TABLE "{table}" ({kinds})')
                marks = ", ".join("?" * len(columns))
                con.executemany(
                    f'INSERT INTO "{table}" VALUES ({marks})', ([row.get(name) for name in columns] for row in rows)
                )
            con.commit()
        return path


def document_of(path: Path) -> dict[str, Any]:
    """Return a Kineto trace with exact times."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.name.endswith(".gz") else raw, parse_float=Decimal)


def export_of(document: Mapping[str, Any], into: Export | None = None, hardware: int = 0) -> Export:
    """Return the export that Nsight Systems would write for the run of a Kineto trace.

    `into` is an export of other processes to which the run is added. `hardware` is a number in the serialized process
    ids.
    """
    export = into or Export()
    events = [e for e in document["traceEvents"] if e["ph"] == "X" or e.get("name") == "thread_name"]
    pid = next(e["pid"] for e in events if e.get("cat", "").startswith("cuda_") and e["cat"] != "cuda_sync")
    base = int(document.get("baseTimeNanoseconds") or 0) or _floor(events)
    shift = 0 if document.get("baseTimeNanoseconds") else base
    _Writer(export, int(pid), hardware, shift).write(events)
    if into is None:
        _about(export, document, base)
    else:
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=int(pid))
    return export


def _floor(events: list[dict[str, Any]]) -> int:
    return min(_ns(e["ts"]) for e in events if e["ph"] == "X")


def _ns(us: Any) -> int:
    return round(Decimal(us) * 1000)


def _about(export: Export, document: Mapping[str, Any], base: int) -> None:
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.28.1")
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.4.1.0")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=base)
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", devStateName="host", nameEnum=0, value="node7")
    for device in document.get("deviceProperties", ()):
        export.add(
            "TARGET_INFO_GPU",
            **{
                "vmId": 0,
                "id": 100 + device["id"],
                "name": device["name"],
                "totalMemory": device.get("totalGlobalMem"),
            },
            **{"smCount": device.get("numSms"), "computeMajor": 9, "computeMinor": 0, "threadsPerWarp": 32},
        )
        for process in {row["pid"] for row in export.rows["PROCESSES"]}:
            export.add("TARGET_INFO_CUDA_DEVICE", gpuId=100 + device["id"], cudaId=device["id"], pid=process)
    for enum, symbols in _ENUM_ROWS.items():
        for number, symbol in symbols.items():
            export.add(enum, id=number, name=symbol, label=symbol)


class _Writer:
    def __init__(self, export: Export, pid: int, hardware: int, shift: int) -> None:
        self.export, self.shift = export, shift
        self.pid = hardware << 48 | pid << 24
        export.add("PROCESSES", globalPid=self.pid, pid=pid, name="python3.11")
        self.waits: dict[int, tuple[int, int]] = {}

    def write(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            args = event.get("args", {})
            if event.get("cat") == "cuda_sync" and "wait_on_cuda_event_record_corr_id" in args:
                self.waits[args["wait_on_cuda_event_record_corr_id"]] = (
                    args["wait_on_cuda_event_id"], args["wait_on_stream"],
                )  # fmt: skip
        for event in events:
            if event["ph"] == "M":
                self.thread_name(event)
            elif (kind := getattr(self, event.get("cat", ""), None)) is not None:
                kind(event)

    def thread_name(self, event: dict[str, Any]) -> None:
        if (event["pid"] << 24) == self.pid & (1 << 48) - 1 and isinstance(event["tid"], int):
            name = self.export.text(event["args"]["name"])
            self.export.add("ThreadNames", nameId=name, priority=0, globalTid=self.pid | event["tid"])

    def times(self, event: dict[str, Any]) -> dict[str, int]:
        start = _ns(event["ts"]) - self.shift
        return {"start": start, "end": start + _ns(event["dur"])}

    def on_gpu(self, event: dict[str, Any]) -> dict[str, Any]:
        args = event["args"]
        stream = args["stream"]
        return {
            **self.times(event),
            **{"deviceId": args["device"], "contextId": 1, "greenContextId": 0, "globalPid": self.pid},
            **{"streamId": NONE if stream == -1 else stream, "correlationId": args["correlation"]},
            "graphNodeId": args.get("graph node id"),
        }

    def nvtx(self, event: dict[str, Any], text: str) -> None:
        thread = self.pid | int(event["tid"])
        named: dict[str, Any] = {"text": text}
        if len(text) % 2:  # registered texts are stored as numbers, others as text
            named = {"textId": self.export.text(text)}
        self.export.add("NVTX_EVENTS", **self.times(event), eventType=59, globalTid=thread, domainId=0, **named)

    def cpu_op(self, event: dict[str, Any]) -> None:
        number = event.get("args", {}).get("External id", 1)
        self.nvtx(event, f"{event['name']}, op_id = {number}")

    def user_annotation(self, event: dict[str, Any]) -> None:
        self.nvtx(event, event["name"])

    def cuda_runtime(self, event: dict[str, Any]) -> None:
        correlation = event["args"]["correlation"]
        self.export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            **self.times(event), eventClass=0, globalTid=self.pid | int(event["tid"]), correlationId=correlation,
            nameId=self.export.text(f"{event['name']}_v7000"), returnValue=0,
        )  # fmt: skip
        if event["name"] == "cudaEventRecord":
            number, stream = self.waits.get(correlation, (90_000 + correlation, 7))
            self.export.add(
                "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                timestamp=0, deviceId=0, contextId=1, streamId=stream, correlationId=correlation, globalPid=self.pid,
                eventId=number, eventSyncId=correlation + 1,
            )  # fmt: skip

    cuda_driver = cuda_runtime

    def kernel(self, event: dict[str, Any]) -> None:
        args, name = event["args"], self.export.text(event["name"])
        grid, block = args.get("grid", [1, 1, 1]), args.get("block", [1, 1, 1])
        self.export.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **self.on_gpu(event), demangledName=name, shortName=name, registersPerThread=32, staticSharedMemory=0,
            dynamicSharedMemory=0, graphId=args.get("graph id"),
            **{f"grid{axis}": n for axis, n in zip("XYZ", grid, strict=True)},
            **{f"block{axis}": n for axis, n in zip("XYZ", block, strict=True)},
        )  # fmt: skip

    def gpu_memcpy(self, event: dict[str, Any]) -> None:
        match = re.fullmatch(r"Memcpy (\w+) \((\w+) -> (\w+)\)", event["name"])
        assert match, event["name"]
        self.export.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            **self.on_gpu(event), bytes=event["args"].get("bytes"), copyKind=COPIES[match[1]],
            srcKind=MEMORIES[match[2]], dstKind=MEMORIES[match[3]],
        )  # fmt: skip

    def gpu_memset(self, event: dict[str, Any]) -> None:
        memory = MEMORIES[event["name"].removeprefix("Memset (").removesuffix(")")]
        self.export.add(
            "CUPTI_ACTIVITY_KIND_MEMSET",
            **self.on_gpu(event),
            value=0,
            bytes=event["args"].get("bytes"),
            memKind=memory,
        )

    def cuda_sync(self, event: dict[str, Any]) -> None:
        args = event["args"]
        record = args.get("wait_on_cuda_event_record_corr_id")
        self.export.add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            **self.on_gpu(event), syncType=SYNCS[event["name"]], eventId=args.get("wait_on_cuda_event_id", NONE),
            eventSyncId=0 if record is None else record + 1,
        )  # fmt: skip
