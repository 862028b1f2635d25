"""Traces that break what a profiler promises, made from a random program or from noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.harness import call, kernel, op, x
from tests.synthetic.random_capture import random_capture

Events = list[dict[str, Any]]
_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync")
_NAMES = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaEventQuery", "cudaEventRecord", "cudaFree",
          "cudaStreamWaitEvent", "cudaStreamQuery", "cudaGraphLaunch", "hipMemcpyWithStream")  # fmt: skip
_FRAMES = ("train.py(1): f", "threading.py(320): wait", "run_backward")
_OPERATORS = ("a", "autograd::engine::evaluate_function: MmBackward0", "forward")


def noise(rng: random.Random, n: int = 80) -> Events:
    """Return events that cross, have no or a negative duration, and do not follow from each other."""
    trace: Events = [
        x("user_annotation", f"ProfilerStep#{k}", 1000 * k, rng.choice([900, 1000, 1100])) for k in range(3)
    ]
    for number in range(1, n):
        at, tid = rng.randrange(3000), rng.choice([1, 1, 2, 3])
        trace.append(op(rng.choice(_OPERATORS), at, rng.choice([0, 1, 40, 700]), tid=tid))
        trace.append(x("python_function", rng.choice(_FRAMES), at - 20, rng.choice([5, 30, 400]), tid))
        trace.append(call(rng.choice(_NAMES), at + rng.randrange(50), rng.choice([0, 3, 200]), number, tid=tid))
        if rng.random() < 0.8:
            start, stream, device = at + rng.randrange(-100, 400), rng.choice([7, 8]), rng.choice([0, 0, 1])
            trace.append(kernel("k", start, rng.choice([-5, 0, 10, 300]), number, stream, device))
        if rng.random() < 0.2:
            trace.append(kernel("orphan", rng.randrange(3000), 20, 1000 + number, stream=9))
    return trace


def _shuffled(trace: Events, rng: random.Random) -> Events:
    return rng.sample(trace, len(trace))


def _cut_off(trace: Events, rng: random.Random) -> Events:
    """Keep the first half or more of the events, in the order of the file."""
    return trace[: rng.randrange(len(trace) // 2, len(trace))]


def _without_some(trace: Events, rng: random.Random) -> Events:
    return [e for e in trace if rng.random() < 0.8]


def _clocks_apart(trace: Events, rng: random.Random) -> Events:
    """Shift the GPU's clock: work then begins before its launch or long after it."""
    by = rng.choice([-3000, -200, -20, -2, 5, 200])
    return [{**e, "ts": e["ts"] + by} if e.get("cat") in _GPU else e for e in trace]


def _clock_jumps(trace: Events, rng: random.Random) -> Events:
    """Set the clock of a thread or stream back at some moment. Its events then overlap."""
    times = [e["ts"] for e in trace if "dur" in e]
    at, of = rng.choice(times), rng.choice([e["tid"] for e in trace if "dur" in e])
    return [{**e, "ts": e["ts"] - 150} if e.get("tid") == of and e.get("ts", 0) > at else e for e in trace]


def _durations(trace: Events, rng: random.Random) -> Events:
    """Make some durations zero, negative, or far longer."""
    return [{**e, "dur": rng.choice([0, -7, e["dur"] * 9])} if "dur" in e and rng.random() < 0.1 else e for e in trace]


def _hip(trace: Events, rng: random.Random) -> Events:
    """Rename CUDA calls to HIP calls."""
    return [{**e, "name": e["name"].replace("cuda", "hip", 1)} if e.get("cat") == "cuda_runtime" else e for e in trace]


def _two_processes(trace: Events, rng: random.Random) -> Events:
    """Add a second process that runs the same program a little later."""
    return [*trace, *(_copied(e, 1, rng.choice([0, 3, 500])) for e in trace)]


def _crowd(trace: Events, rng: random.Random) -> Events:
    """Multiply the events of one category by sixteen."""
    of = rng.choice(sorted({e["cat"] for e in trace if "cat" in e and "dur" in e}))
    return [*trace, *({**e, "ts": e["ts"] + 3 * k} for e in trace if e.get("cat") == of for k in range(1, 16))]


def _many_threads(trace: Events, rng: random.Random) -> Events:
    """Copy all operators to each of fifteen new threads."""
    return [*trace, *({**e, "tid": 500 + k} for e in trace if e.get("cat") == "cpu_op" for k in range(15))]


def _poll_loop(trace: Events, rng: random.Random) -> Events:
    """Add a polling loop on an existing thread, regardless of the thread's other events."""
    at, tid = rng.choice([(e["ts"], e["tid"]) for e in trace if e.get("cat") == "cuda_runtime"] or [(0, 1)])
    return [
        *trace,
        *(call("cudaEventQuery", at + 4 * k, 2, 900_000 + k, tid=tid) for k in range(rng.randrange(2, 200))),
    ]


def _copied(event: dict[str, Any], by: int, later: float) -> dict[str, Any]:
    args = dict(event.get("args") or {})
    for name in ("correlation", "External id", "wait_on_cuda_event_record_corr_id"):
        if isinstance(args.get(name), int):
            args[name] += 5_000_000 * by
    copy = {**event, "pid": event["pid"] + by if event.get("cat") in _GPU else event["pid"] + 7000 * by, "args": args}
    if "device" in args:
        args["device"] += by
    return {**copy, "ts": event["ts"] + later} if "ts" in event else copy


_HARMS: tuple[Callable[[Events, random.Random], Events], ...] = (
    _shuffled, _cut_off, _without_some, _clocks_apart, _clock_jumps, _durations, _hip, _two_processes, _crowd, _many_threads,
    _poll_loop,
)  # fmt: skip


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a trace and apply up to three of these mutations to it."""
    seed = draw(st.integers(0, 10**6))
    trace = noise(random.Random(seed)) if draw(st.booleans()) else random_capture(seed)["traceEvents"]
    for harm in draw(st.lists(st.sampled_from(_HARMS), max_size=3, unique=True)):
        trace = harm([e for e in trace if isinstance(e.get("pid"), int)], random.Random(seed))
    return {"traceEvents": trace}
