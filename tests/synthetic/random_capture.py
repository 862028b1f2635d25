"""Small, physically possible random captures that compare the `hta` profile with a reference implementation."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

MAX_EVENTS = 200
_PID = 4000
_OPS = ("aten::add", "aten::linear", "aten::mm", "aten::copy_", "aten::empty")
_NOTES = ("## optimizer ##", "## zero_grad ##", "# running dense_arch")
_KERNELS = ("ampere_sgemm_128x64_nn", "void at::native::reduce_kernel<512, 1>(float*)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)")  # fmt: skip
_LAUNCHES = {
    "cudaLaunchKernel": ("kernel", None),
    "cudaMemcpyAsync": ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
    "cudaMemsetAsync": ("gpu_memset", "Memset (Device)"),
}


@dataclass(slots=True)
class _Thread:
    tid: int
    now: int
    words: tuple[str, ...]


@dataclass(slots=True)
class _State:
    """The state shared by all threads: the streams' ends (µs), recorded events, ids, and the rows so far."""

    rng: Random
    rows: list[dict[str, Any]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    recorded: list[tuple[int, int, int, int]] = field(default_factory=list)
    correlation: int = 100


def random_capture(seed: int) -> dict[str, Any]:
    """Return a Kineto document of at most 200 events: whole µs, concurrent threads, waits, syncs, nested operators.

    Some documents have two ProfilerSteps (readers that work like HTA drop the last one). Some have a forward and an
    autograd thread. The same seed gives the same document.
    """
    rng = Random(f"random capture {seed}")
    state = _State(rng)
    base = 1_000_000 + rng.randrange(1_000_000)
    streams: list[int] = rng.sample([7, 20, 24, 28], rng.randint(1, 3))
    n_steps = rng.choice((0, 1, 2, 2))
    backward = rng.random() < 0.4
    state.rows.append({"name": "process_name", "ph": "M", "ts": base, "pid": _PID, "tid": 0, "args": {"name": "p"}})
    threads = [_Thread(_PID + i, base + 5 + 7 * i, _OPS) for i in range(rng.randint(1, 3))]
    if backward and len(threads) > 1:
        threads[1].words = ("autograd::engine::evaluate_function: MmBackward0",)
    elif backward:
        backward = False
    for step in range(max(n_steps, 1)):
        start = max(t.now for t in threads)
        note = _cpu(state, threads[0], "user_annotation", f"ProfilerStep#{step}", start, {}) if n_steps else None
        inner = _cpu(state, threads[0], "user_annotation", "## forward ##", start, {}) if backward else None
        for thread in threads:
            thread.now = start + 1 + rng.randrange(4)
        limit = MAX_EVENTS * (step + 1) // max(n_steps, 1) - 12
        _launch(state, threads[0], streams[0])
        if backward and rng.random() < 0.8:
            # Mostly the autograd thread works while the forward thread is idle. If both work, a reader that puts them
            # on one stack sees crossing operators, negative weights, and sometimes a cycle.
            _run(state, [threads[0], *threads[2:]], streams, limit - 30)
            threads[1].now = max(t.now for t in threads) + 1
            _run(state, threads[1:2], streams, limit)
        else:
            _run(state, threads, streams, limit)
        threads[0].now += 2
        for row in (inner, note):
            if row is not None:
                row["dur"] = max(t.now for t in threads) - row["ts"] + rng.randrange(3)
        for thread in threads:
            thread.now = start + (note or {"dur": thread.now - start})["dur"] + 3 + rng.randrange(20)
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "traceEvents": state.rows,
        "traceName": f"random-{seed}.json",
    }


def _run(state: _State, threads: list[_Thread], streams: list[int], limit: int) -> None:
    """Interleave the threads by their clocks. They then use the shared state in order of time."""
    budget = state.rng.randint(3, 14)
    programs = [(thread, _program(state, thread, streams, budget, 0)) for thread in threads]
    while programs and len(state.rows) < limit:
        thread, program = min(programs, key=lambda p: p[0].now)
        if next(program, None) is None:
            programs = [p for p in programs if p[0] is not thread]
    for _, program in programs:
        program.close()


def _program(state: _State, thread: _Thread, streams: list[int], n: int, depth: int) -> Generator[bool, None, None]:
    """Run n random actions of a thread. Yields between any two moments, so that other threads can act in between."""
    rng = state.rng
    for _ in range(n):
        thread.now += rng.choice((0, 1, 1, 3, 10, 40))
        roll = rng.random()
        if roll < 0.35 and depth < 3:
            yield from _operator(state, thread, streams, depth)
        elif roll < 0.8:
            _launch(state, thread, rng.choice(streams))
        elif roll < 0.9 and len(streams) > 1:
            _event(state, thread, streams)
        else:
            _sync(state, thread, rng.choice(streams))
        yield True


def _operator(state: _State, thread: _Thread, streams: list[int], depth: int) -> Generator[bool, None, None]:
    rng = state.rng
    note = rng.random() < 0.2
    cat, name = ("user_annotation", rng.choice(_NOTES)) if note else ("cpu_op", rng.choice(thread.words))
    row = _cpu(state, thread, cat, name, thread.now, {"External id": len(state.rows)})
    try:
        yield True
        yield from _program(state, thread, streams, rng.randint(0, 3), depth + 1)
    finally:
        # Even if the capture is full: an operator must not end before the events inside it.
        thread.now += rng.choice((0, 1, 5))
        row["dur"] = max(thread.now - row["ts"], 1)
        thread.now = row["ts"] + row["dur"]


def _cpu(state: _State, thread: _Thread, cat: str, name: str, ts: int, args: dict[str, Any]) -> dict[str, Any]:
    row = {"ph": "X", "cat": cat, "name": name, "pid": _PID, "tid": thread.tid, "ts": ts, "dur": 1, "args": args}
    state.rows.append(row)
    return row


def _call(state: _State, thread: _Thread, name: str, dur: int) -> int:
    """Add a runtime call and return its correlation id."""
    state.correlation += 1
    _cpu(state, thread, "cuda_runtime", name, thread.now, {"cbid": 1, "correlation": state.correlation})
    state.rows[-1]["dur"] = dur
    thread.now += dur
    return state.correlation


def _gpu(state: _State, cat: str, name: str, stream: int, ts: int, dur: int, args: dict[str, Any]) -> None:
    args = {"device": 0, "context": 1, "stream": stream, **args}
    state.rows.append(
        {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}
    )


def _launch(state: _State, thread: _Thread, stream: int) -> None:
    rng, begin = state.rng, thread.now
    name = rng.choice(("cudaLaunchKernel",) * 4 + ("cudaMemcpyAsync", "cudaMemsetAsync"))
    corr = _call(state, thread, name, rng.randint(1, 8))
    cat, fixed = _LAUNCHES[name]
    start = max(
        begin + rng.randint(1, 12), state.ends.get(stream, 0) + rng.choice((0, 0, 1, 2)), state.waits.pop(stream, 0)
    )
    if rng.random() < 0.02:
        start += 1600  # longer than HTA's limit for a delay between kernels
    dur = rng.choice((1, 2, 5, 30, 80))
    _gpu(state, cat, fixed or rng.choice(_KERNELS), stream, start, dur, {"correlation": corr})
    state.ends[stream] = start + dur
    flow = {"id": corr, "cat": "ac2g", "name": "ac2g"}
    state.rows.append({"ph": "s", "pid": _PID, "tid": thread.tid, "ts": begin, **flow})
    state.rows.append({"ph": "f", "pid": 0, "tid": stream, "ts": start, "bp": "e", **flow})


def _event(state: _State, thread: _Thread, streams: list[int]) -> None:
    """Record an event on one stream and make another stream wait for it, both from this thread."""
    source, target = state.rng.sample(streams, 2)
    event = _record(state, thread, source)
    thread.now += state.rng.choice((0, 1, 4))
    begin = thread.now
    corr = _call(state, thread, "cudaStreamWaitEvent", 2)
    _gpu(state, "cuda_sync", "Stream Wait Event", target, begin + 1, 1, {"correlation": corr, **_wait_args(event)})
    state.waits[target] = max(state.waits.get(target, 0), event[2])


def _record(state: _State, thread: _Thread, stream: int) -> tuple[int, int, int, int]:
    end = state.ends.get(stream, 0)
    corr = _call(state, thread, "cudaEventRecord", 1)
    state.recorded.append((corr, stream, end, len(state.recorded) + 1))
    return state.recorded[-1]


def _wait_args(event: tuple[int, int, int, int]) -> dict[str, Any]:
    corr, stream, _, number = event
    return {
        "wait_on_stream": stream,
        "wait_on_cuda_event_record_corr_id": corr,
        "wait_on_cuda_event_id": number,
    }


def _sync(state: _State, thread: _Thread, stream: int) -> None:
    rng, begin = state.rng, thread.now
    kind = rng.choice(("Stream Sync", "Context Sync", "Event Sync"))
    event = _record(state, thread, stream) if kind == "Event Sync" else (0, 0, 0, 0)
    begin = thread.now
    if kind == "Context Sync":
        until = max(state.ends.values(), default=0)
    else:
        until = event[2] if kind == "Event Sync" else state.ends.get(stream, 0)
    name = {"Stream Sync": "cudaStreamSynchronize", "Context Sync": "cudaDeviceSynchronize"}
    corr = _call(state, thread, name.get(kind, "cudaEventSynchronize"), max(until - begin + rng.randint(1, 3), 2))
    args = {"correlation": corr, "cuda_sync_kind": kind, **(_wait_args(event) if kind == "Event Sync" else {})}
    on = stream if kind == "Stream Sync" else -1
    _gpu(state, "cuda_sync", kind, on, begin + 1, thread.now - begin - 1, args)
