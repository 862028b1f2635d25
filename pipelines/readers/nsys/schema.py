"""Descriptions, as data, of the tables and columns of an export that are read, under release-independent names.

Source: NVIDIA's "SQLite Schema Reference" for release 2026.4 (schema 3.28.1), and the schema of an export of 2024.6
(3.16.1), printed by another project. nsys creates only tables that have rows. Later releases added columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from pipelines.readers.sqlite_exports.sources import Source

STRINGS = "StringIds"


_ON_GPU = {
    "start_ns": "start",
    "end_ns": "end",
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation": "correlationId",
}
_NEEDED_ON_GPU = frozenset(_ON_GPU) - {"context"}
_PROCESS_SHIFT = 24  # bits of the thread, below those of the process
_Source = partial(Source, process_shift=_PROCESS_SHIFT)

SOURCES = (
    _Source(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "_nsys_work",
        _ON_GPU
        | {
            "name_id": "demangledName",
            "short_name_id": "shortName",
            "graph_node": "graphNodeId",
            "graph": "graphId",
            "registers": "registersPerThread",
            "static_shared_bytes": "staticSharedMemory",
            "dynamic_shared_bytes": "dynamicSharedMemory",
            **{f"{shape}_{axis}": f"{shape}{axis.upper()}" for shape in ("grid", "block") for axis in "xyz"},
        },
        _NEEDED_ON_GPU | {"name_id"},
        "globalPid",
        "no kernels are in the export",
        work="CUPTI_ACTIVITY_KIND_KERNEL",
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "_nsys_work",
        _ON_GPU
        | {
            "bytes": "bytes",
            "copy_kind": "copyKind",
            "source_memory": "srcKind",
            "target_memory": "dstKind",
            "graph_node": "graphNodeId",
        },
        _NEEDED_ON_GPU | {"bytes", "copy_kind"},
        "globalPid",
        work="CUPTI_ACTIVITY_KIND_MEMCPY",
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "_nsys_work",
        _ON_GPU | {"bytes": "bytes", "target_memory": "memKind", "graph_node": "graphNodeId"},
        _NEEDED_ON_GPU | {"bytes"},
        "globalPid",
        work="CUPTI_ACTIVITY_KIND_MEMSET",
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "_nsys_work",
        _ON_GPU | {"graph": "graphId"},
        _NEEDED_ON_GPU | {"graph"},
        "globalPid",
        work="CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "_nsys_calls",
        {
            "start_ns": "start",
            "end_ns": "end",
            "thread": "globalTid",
            "correlation": "correlationId",
            "name_id": "nameId",
        },
        frozenset({"start_ns", "end_ns", "thread", "correlation", "name_id"}),
        "globalTid",
        "no CUDA calls are in the export: what launched the GPU work, and what the CPU waited for, is unknown",
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "_nsys_waits",
        _ON_GPU | {"sync_type": "syncType", "cuda_event": "eventId", "event_sync": "eventSyncId"},
        _NEEDED_ON_GPU | {"context", "sync_type", "cuda_event"},
        "globalPid",
        "no waits are in the export: they are inferred from calls and times where possible",
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        "_nsys_event_records",
        {
            "context": "contextId",
            "stream": "streamId",
            "correlation": "correlationId",
            "cuda_event": "eventId",
            "event_sync": "eventSyncId",
        },
        frozenset({"context", "stream", "correlation", "cuda_event"}),
        "globalPid",
    ),
    _Source(
        "NVTX_EVENTS",
        "_nsys_ranges",
        {
            "start_ns": "start",
            "end_ns": "end",
            "event_type": "eventType",
            "thread": "globalTid",
            "end_thread": "endGlobalTid",
            "text": "text",
            "text_id": "textId",
            "domain": "domainId",
        },
        frozenset({"start_ns", "end_ns", "thread", "text"}),
        "globalTid",
        "no NVTX ranges are in the export: operators, steps and annotations are unknown, and so is host time outside CUDA "
        "calls",
        timed=("start_ns",),  # marks and open ranges have no end
        texts=frozenset({"text"}),
    ),
    _Source(
        "ThreadNames",
        "_nsys_thread_names",
        {"thread": "globalTid", "name_id": "nameId"},
        frozenset(),
        "globalTid",
    ),
    _Source(
        "GPU_METRICS",
        "_nsys_samples",
        {"start_ns": "timestamp", "type_id": "typeId", "metric": "metricId", "value": "value"},
        frozenset({"start_ns", "type_id", "metric", "value"}),
        None,  # samples belong to a GPU, not to a process
        timed=("start_ns",),
    ),
    _Source(
        "TARGET_INFO_GPU_METRICS",
        "_nsys_metric_names",
        {"type_id": "typeId", "metric": "metricId", "name": "metricName"},
        frozenset({"type_id", "metric", "name"}),
        None,
        timed=(),
        texts=frozenset({"name"}),
    ),
)
ENUMS = ("ENUM_CUPTI_SYNC_TYPE", "ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND", "ENUM_NSYS_EVENT_TYPE")
"""Tables with the names of numbers (id, name). sql/rules/readers/nsys_enums.csv replaces missing tables."""

ABOUT = (
    "META_DATA_EXPORT",
    "PROCESSES",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_GPU",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_SYSTEM_ENV",
)
"""Tables with facts about the capture, of a few rows each."""

READ = frozenset({STRINGS, *(source.name for source in SOURCES), *ENUMS, *ABOUT})
_VERSION = re.compile(r"_V(\d{1,9})$")

# Prefixes of tables with measurements that no model uses. A finding names those that have rows.
LEFT_OUT_PREFIXES = (
    "CUBLAS_", "CUDA_", "CUDNN_", "CUPTI_", "COMPOSITE_", "DX", "ETW_", "GENERIC_EVENTS", "GPU_", "MPI_", "NCCL_", "NET_",
    "NVTX_EVENTS_V", "NVVIDEO_", "OPENACC_", "OPENGL", "OPENMP_", "OSRT_", "PROFILER_OVERHEAD", "SAMPLING_", "SCHED_", "UCX_", "VULKAN_",
)  # fmt: skip


def sources_in(tables: Collection[str]) -> tuple[Source, ...]:
    """Return SOURCES with their names in an export that has these tables.

    NVIDIA documents names without a version, but some exports have names such as `NVTX_EVENTS_V3`. The table with the
    plain name is used, else the table with the highest version (nsys-ai 0.3.0 on PyPI,
    tests/test_sync_table_resolution.py).
    """
    newest: dict[str, tuple[int, str]] = {}
    for name in tables:
        if match := _VERSION.search(name):
            plain = name[: match.start()]
            newest[plain] = max(newest.get(plain, (0, "")), (int(match[1]), name))
    return tuple(
        replace(source, name=newest[source.name][1]) if source.name in newest and source.name not in tables else source
        for source in SOURCES
    )


def process_key(serialized: int) -> int:
    """Return the key of a process (hardware, VM and process id) from a `globalPid` or `globalTid`.

    A serialized id has 24 bits of thread, 24 bits of process, and above them VM and hardware (NVIDIA's "SQLite
    Examples").
    """
    return serialized >> _PROCESS_SHIFT
