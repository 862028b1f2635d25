"""Hand-made traces: for each kind of fix, a trace that needs it and a similar one that does not.

Times are in us.
"""

from __future__ import annotations

from typing import Any

from tests.harness import call, kernel, launched, op, x

Event = dict[str, Any]
Trace = list[Event]
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}


def annotation(name: str, start: float, takes: float) -> Event:
    return x("user_annotation", name, start, takes)


def synchronized_steps(first_wait: float) -> Trace:
    """Return four steps of 1000 us with a kernel of 500 us, a call that waits for it, and then 400 us of host work."""
    events: Trace = []
    for i in range(4):
        at = 1000 * i
        events += [op("aten::mm", at, 10), *launched(at + 2, (at + 20, 500), 10 * i + 1)]
        events += [op("aten::item", at + 30, first_wait - 30), op("aten::copy_", at + 31, first_wait - 32)]
        events += [call("cudaMemcpyAsync", at + 32, 3, 10 * i + 2)]
        events += [kernel("Memcpy DtoH (Device -> Pinned)", at + 521, 2, 10 * i + 2, cat="gpu_memcpy")]
        events += [call("cudaStreamSynchronize", at + 36, first_wait - 40, 10 * i + 3)]
        events += [annotation("log", at + first_wait + 10, 950 - first_wait)]
    return [*events, op("aten::end", 4000, 10)]


def loading(name: str) -> Trace:
    return [annotation(name, 0, 400), op("aten::mm", 400, 10), *launched(402, (420, 800), 1)]


def copying(name: str, bytes_copied: int | None = None) -> Trace:
    copy = kernel(name, 10, 400, 1, cat="gpu_memcpy")
    copy["args"] |= {} if bytes_copied is None else {"bytes": bytes_copied}
    first = [op("aten::to", 0, 10), call("cudaMemcpyAsync", 2, 5, 1), copy]
    return [*first, op("aten::mm", 10, 10), *launched(12, (411, 800), 2)]


def operators(takes: float, kernel_takes: float) -> Trace:
    """Return ten operators in sequence, each of which launches a kernel. Durations are in us."""
    starts, events = [i * takes for i in range(10)], []
    free = 0.0
    for number, start in enumerate(starts):
        free = max(free + 1, start + 20)
        events += [op("aten::mul", start, takes), *launched(start + 2, (free, kernel_takes), number + 1)]
        free += kernel_takes
    return events


def optimizer(launches: int, kernels: tuple[tuple[str, float], ...] = (("add", 2),)) -> Trace:
    """Return an optimizer step after a matrix product."""
    return [op("aten::mm", 0, 10), *launched(2, (20, 30), 1), *optimizer_step(50, launches, kernels)]


def optimizer_step(
    start: float, launches: int, kernels: tuple[tuple[str, float], ...], kind: str = "Adam", free: float = 0
) -> Trace:
    """Return an optimizer step with this number of launches, each in an operator of 50 us.

    The launches cycle through the kernels, which are pairs of a name and a duration. The GPU is free from `free` on.
    """
    events = [annotation(f"Optimizer.step#{kind}.step", start, 50 * launches)]
    for i in range(launches):
        at, (name, takes) = start + 50 * i, kernels[i % len(kernels)]
        begin, category = max(free + 1, at + 30), "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        events += [op("aten::add_", at, 50), *launched(at + 20, (begin, takes), int(at), name, cat=category)]
        free = begin + takes
    return events


def pausing(event: Event) -> Trace:
    """Return a thread that `event` holds up between two operators, each of which launches a kernel."""
    before = [op("aten::mm", 0, 10), *launched(2, (20, 50), 1)]
    return [*before, event, op("aten::mm", 500, 10), *launched(502, (520, 50), 2)]


def collective(name: str) -> Trace:
    """Return a kernel of 400 us and after it a matrix product of 500 us."""
    gather = [op("c10d::work", 0, 10), *launched(2, (20, 400), 1, name)]
    return [*gather, op("aten::mm", 10, 10), *launched(12, (421, 500), 2)]


def preparing(launched_us: float) -> Trace:
    """Return a host function of 400 us that launches `launched_us` of the trace's 1000 us of GPU work."""
    inside = [op("aten::to", 390, 10), *launched(392, (410, launched_us), 1, "cast")]
    return [
        *(annotation("prepare", 0, 400), *inside),
        *(op("aten::mm", 400, 10), *launched(402, (411 + launched_us, 1000 - launched_us), 2)),
    ]


def products(name: str, device: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a kernel by name, on `device`, or on a device that the trace does not name."""
    events = [op("aten::mm", 0, 10), *launched(2, (20, 800), 1, name)]
    return {"traceEvents": events, "deviceProperties": [device] if device else []}


def copies(name: str, bytes_copied: int | None) -> dict[str, Any]:
    """Return a copy of 400 us on an H100, whose bus transfers 64 GB/s."""
    return {"traceEvents": copying(name, bytes_copied), "deviceProperties": [H100]}


FLOAT32 = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"

HAS_AND_LACKS: dict[str, tuple[Any, Any]] = {
    "do_not_wait": (synchronized_steps(530), operators(10, 100)),
    "load_ahead": (loading("enumerate(DataLoader)#_SingleProcess"), loading("forward")),
    "copy_ahead": (copying("Memcpy HtoD (Pageable -> Device)"), copying("Memcpy DtoH (Device -> Pageable)")),
    "graph_or_compile": (operators(100, 2), operators(10, 1000)),
    "fused_optimizer": (optimizer(20), optimizer(4)),
    "no_empty_cache": (pausing(call("cudaFree", 100, 300, 9)), pausing(call("cudaFuncGetAttributes", 100, 300, 9))),
    "no_gc": (pausing(annotation("gc.collect", 100, 300)), pausing(annotation("collected", 100, 300))),
    "asynchronous_checkpoint": (pausing(annotation("save_checkpoint", 100, 300)), pausing(annotation("saved", 100, 300))),
    "compile_once": (pausing(annotation("compile", 100, 300)), pausing(annotation("complete", 100, 300))),
    "overlap_communication": (collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), collective("gather")),
    "move_host_work": (preparing(50), preparing(500)),
    "lower_precision": (products(FLOAT32, H100), products(FLOAT32)),
    "pin_memory": (copies("Memcpy HtoD (Pageable -> Device)", 2_560_000), copies("Memcpy HtoD (Pinned -> Device)", 2_560_000)),
}  # fmt: skip
"""A trace that needs the fix and one that does not, by kind of fix."""
