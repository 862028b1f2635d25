"""A small hand-written run: an operator launches two kernels on two streams.

The second kernel waits for the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.readers.nsys.writer import NONE, Export

START = 1_700_000_000_000_000_000
PID = 4000 << 24
MAIN = PID | 4000
TYPE = 7 << 40  # the other bits are not read
SMS, CLOCK = "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"


def small(pid: int = PID, into: Export | None = None) -> Export:
    """Return an export of the small run, with times in ns since the session's start."""
    export = into or Export()
    thread = pid | (pid >> 24) & 0xFFFFFF
    if into is None:
        export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=START)
        export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.28.1")
    export.add("PROCESSES", globalPid=pid, pid=(pid >> 24) & 0xFFFFFF, name="python3")
    range_of(export, "aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]]", 1_000, 90_000, thread)
    call(export, "cudaLaunchKernel_v7000", 2_000, 6_000, 11, thread)
    kernel(export, "gemm", 8_000, 40_000, 11, 7, pid)
    call(export, "cudaEventRecord_v3020", 7_000, 9_000, 12, thread)
    record(export, 5, 12, 7, pid, sync=77)
    call(export, "cudaStreamWaitEvent_v3020", 10_000, 12_000, 13, thread)
    wait(export, 2, 11_000, 11_500, 13, 20, pid, event=5, sync=77)
    call(export, "cudaLaunchKernel_v7000", 13_000, 16_000, 14, thread)
    kernel(export, "relu", 41_000, 60_000, 14, 20, pid)
    call(export, "cudaDeviceSynchronize_v3020", 20_000, 61_000, 15, thread)
    wait(export, 4, 20_500, 60_900, 15, NONE, pid)
    return export


def sampled() -> Export:
    """Return the small run with samples of GPU 0 and of the idle GPU 1, every 10 us from 5 us on.

    `gemm` runs from 8 to 40 us, `relu` from 41 to 60.
    """
    export = small()
    for gpu in (0, 1):
        for metric, name in enumerate((SMS, CLOCK, "plain")):
            named = {"metricId": metric, "metricName": name, "typeName": "GPU Metrics"}
            export.add("TARGET_INFO_GPU_METRICS", typeId=TYPE | gpu, sourceId=1, **named)
        for n in range(6):
            at = 5_000 + 10_000 * n
            export.add("GPU_METRICS", timestamp=at, typeId=TYPE | gpu, metricId=0, value=10 * n)
            export.add("GPU_METRICS", timestamp=at, typeId=TYPE | gpu, metricId=1, value=None if n == 2 else 1_000)
    export.add("GPU_METRICS", timestamp=40_000, typeId=TYPE, metricId=2, value=4)
    return export


def gpu(start: int, end: int, correlation: int | None, stream: int, pid: int) -> dict[str, Any]:
    return {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": stream, "correlationId": correlation,
            "globalPid": pid}  # fmt: skip


def kernel(
    export: Export, name: str, start: int, end: int, correlation: int, stream: int, pid: int = PID, **more: Any
) -> None:
    text = export.text(name)
    where = gpu(start, end, correlation, stream, pid)
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", **{**where, "demangledName": text, "shortName": text, **more})


def call(export: Export, name: str, start: int, end: int, correlation: int, thread: int = MAIN) -> None:
    export.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        start=start, end=end, eventClass=0, globalTid=thread, correlationId=correlation, nameId=export.text(name),
        returnValue=0,
    )  # fmt: skip


def record(export: Export, event: int, correlation: int, stream: int, pid: int = PID, sync: int = 0) -> None:
    where = gpu(0, 0, correlation, stream, pid)
    export.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **where, eventId=event, eventSyncId=sync)


def wait(
    export: Export, kind: int, start: int, end: int, correlation: int, stream: int, pid: int = PID, event: int = NONE,
    sync: int = 0,
) -> None:  # fmt: skip
    where = gpu(start, end, correlation, stream, pid)
    export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **where, syncType=kind, eventId=event, eventSyncId=sync)


def range_of(
    export: Export, text: str, start: int, end: int | None, thread: int = MAIN, kind: int = 59, **more: Any
) -> None:
    export.add("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=thread, text=text, **more)


def written(export: Export, folder: Path, name: str = "a.sqlite") -> Path:
    return export.write(folder / name)
