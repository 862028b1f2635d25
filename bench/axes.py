"""Synthetic traces that each have many items of one kind, such as streams or names.

`growth_of_models` measures models on them, and `tests/models/test_plans.py` searches the plans for quadratic costs.
Each function returns about `n` events. The number of items that name the function grows in proportion to `n`. So a
model that compares every event with every stream takes 16 times as long per event in a trace with 16 times the events.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.harness import call, kernel, op, sync, x

Event = dict[str, Any]
_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def launched(
    at: float, dur: float, n: int, stream: int = 7, start: float = 60, name: str = "gemm", tid: int = 1, device: int = 0
) -> list[Event]:
    """Return a launch at `at` + 1 and its kernel at `at` + `start`."""
    return [call("cudaLaunchKernel", at + 1, 5, n, tid), kernel(name, at + start, dur, n, stream, device)]


def step(number: int, at: float, dur: float) -> Event:
    """Return a profiler step."""
    return x("user_annotation", f"ProfilerStep#{number}", at, dur)


def steps(n: int) -> Iterator[Event]:
    """Yield steps with two streams each. One stream waits for the other, and the host waits for both streams."""
    for number in range(n // 12):
        yield from _waiting_step(number, number * 1000, 5 * number)


def _waiting_step(number: int, at: float, n: int) -> Iterator[Event]:
    yield from (step(number, at, 990), op("a", at + 1, 900))
    yield from _waiting(at, n)
    yield call("cudaDeviceSynchronize", at + 250, 60, n + 4)
    yield sync("Context Sync", at + 251, 58, n + 4)


def _waiting(at: float, n: int) -> Iterator[Event]:
    waits = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": n + 1}
    yield from (call("cudaLaunchKernel", at + 10, 5, n), kernel("gemm", at + 60, 80, n, 7))
    yield from (call("cudaEventRecord", at + 100, 2, n + 1), call("cudaStreamWaitEvent", at + 110, 2, n + 2))
    yield sync("Stream Wait Event", at + 120, 1, n + 2, 8, **waits)
    yield from (call("cudaLaunchKernel", at + 130, 5, n + 3), kernel("copy", at + 200, 80, n + 3, 8))


def operators(n: int) -> Iterator[Event]:
    """Yield nested operators, each with a launch, its kernel and the arrow between them, in five steps."""
    units = n // 6
    yield from (step(i, i * units * 20, units * 20 - 1) for i in range(5))
    for i in range(units):
        at = i * 100
        yield from (op("aten::linear", at, 90), op("aten::mm", at + 2, 80))
        yield from launched(at + 5, 70, i + 1)
        yield {"ph": "s", "id": i, "cat": "ac2g", "name": "ac2g", "pid": 100, "tid": 1, "ts": at + 6}
        yield {"ph": "f", "bp": "e", "id": i, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": at + 65}


def waits(n: int) -> Iterator[Event]:
    """Yield one step, in which a stream repeatedly waits for the other."""
    yield step(0, 0, n * 100)
    for i in range(n // 7):
        yield from _waiting(i * 400, i * 5)


def syncs(n: int) -> Iterator[Event]:
    """Yield kernels after each of which the host waits, in turn for the device, a stream or an event."""
    for i in range(n // 6):
        at, c = i * 400, i * 4
        yield from launched(at, 80, c, 7 + i % 2)
        yield from (call("cudaEventRecord", at + 10, 2, c + 1), op("aten::item", at + 15, 200))
        kind = ("Context Sync", "Stream Sync", "Event Sync")[i % 3]
        named = {
            "Context Sync": "cudaDeviceSynchronize",
            "Stream Sync": "cudaStreamSynchronize",
            "Event Sync": "cudaEventSynchronize",
        }
        args = {"wait_on_stream": 7 + i % 2, "wait_on_cuda_event_record_corr_id": c + 1} if kind == "Event Sync" else {}
        yield call(named[kind], at + 20, 130, c + 2)
        yield sync(kind, at + 21, 125, c + 2, -1 if kind == "Context Sync" else 7 + i % 2, **args)


def streams(n: int) -> Iterator[Event]:
    """Yield kernels on a growing number of streams. The host waits for all of them thirty times."""
    count, every = max(n // 400, 2), n // 60
    for i in range(n // 2):
        yield from launched(i * 100, 400, i + 1, 7 + i % count)
        if i % every == every - 1:
            yield call("cudaDeviceSynchronize", i * 100 + 50, 30, 10**7 + i)
            yield sync("Context Sync", i * 100 + 51, 28, 10**7 + i)


def streams_waited_for(n: int) -> Iterator[Event]:
    """Yield kernels on a growing number of streams. The host waits for the device after every forty kernels."""
    count = max(n // 100, 2)
    for i in range(n // 2):
        yield from launched(i * 100, 400, i + 1, 7 + i % count)
        if i % 40 == 39:
            yield call("cudaDeviceSynchronize", i * 100 + 50, 30, 10**7 + i)
            yield sync("Context Sync", i * 100 + 51, 28, 10**7 + i)


def threads(n: int) -> Iterator[Event]:
    """Yield operators with launches, on a growing number of threads."""
    count = max(n // 100, 2)
    for i in range(n // 3):
        tid = 1 + i % count
        yield op("a", i * 10, 9, tid=tid)
        yield from launched(i * 10, 8, i + 1, tid=tid)


def processes(n: int) -> Iterator[Event]:
    """Yield data-loading workers, each in a separate process, in addition to a process that launches."""
    count = max(n // 100, 2)
    for i in range(n // 4):
        yield {**op("enumerate(DataLoader)", i * 50, 45), "pid": 1000 + i % count, "tid": 1000 + i % count}
        yield op("a", i * 50, 40)
        yield from launched(i * 50, 30, i + 1)


def devices(n: int) -> Iterator[Event]:
    """Yield kernels on eight devices. Each is idle while another works, so their idle intervals overlap."""
    for i in range(n // 2):
        yield from launched(i * 20, 15, i + 1, device=i % 8)


def depth(n: int) -> Iterator[Event]:
    """Yield stacks of Python frames whose depth grows. The innermost frame launches."""
    height = max(n // 100, 2)
    for i in range(n // (height + 2)):
        at = i * height * 4
        yield from (x("python_function", f"f{k}", at + k, 4 * height - 2 * k - 3) for k in range(height))
        yield from launched(at + height, height, i + 1, start=height + 2)


def names(n: int) -> Iterator[Event]:
    """Yield operators, frames, annotations and kernels with distinct names."""
    for i in range(n // 5):
        yield from (op(f"aten::op_{i}", i * 100, 90), x("python_function", f"file_{i}.py(1): f{i}", i * 100 + 1, 80))
        yield x("user_annotation", f"part {i}", i * 100 + 2, 70)
        yield from launched(i * 100 + 3, 60, i + 1, name=f"void kernel_{i}<float, {i}>(float*)")


def shapes(n: int) -> Iterator[Event]:
    """Yield operators with formulas and distinct shapes, in five steps."""
    yield from (step(i, i * n * 5, n * 5 - 1) for i in range(5))
    for i in range(n // 4):
        dims = {"Input Dims": [[i + 1, 64], [64, 32]], "Input type": ["float", "float"], "External id": i}
        yield x("cpu_op", "aten::mm", i * 100, 90, **dims)
        yield from launched(i * 100 + 1, 60, i + 1)


def modules(n: int) -> Iterator[Event]:
    """Yield nested modules, each with a distinct name."""
    for i in range(n // 5):
        yield from (
            x("python_function", f"nn.Module: {k}_{i // j}", i * 100 + j, 95 - 2 * j) for j, k in ((1, "A"), (2, "B"))
        )
        yield op("aten::mm", i * 100 + 5, 80)
        yield from launched(i * 100 + 6, 60, i + 1)


def annotation_pairs(n: int) -> Iterator[Event]:
    """Yield nested annotations on the host and on the GPU."""
    for i in range(n // 6):
        yield x("user_annotation", "outer", i * 100, 99)
        yield x("user_annotation", f"in{i % 7}", i * 100 + 1, 50)
        yield from launched(i * 100, 30, i + 1)
        for name, dur in (("outer", 30), (f"in{i % 7}", 29)):
            yield x("gpu_user_annotation", name, i * 100 + 60, dur, tid=7, pid=0)


def nested_annotations(n: int) -> Iterator[Event]:
    """Yield launches inside nested annotations. The depth of nesting grows: 4 for 12,000 events, 64 for 192,000."""
    height = max(n // 3000, 2)
    for i in range(n // (height * 3)):
        at = i * height * 20
        yield from (x("user_annotation", f"a{k}", at + k, 20 * height - 2 * k - 3) for k in range(height))
        for k in range(height):
            yield from launched(at + height + k * 10, 8, i * height + k + 1, start=12)


def overlapping_streams(n: int) -> Iterator[Event]:
    """Yield kernels that all overlap, on a growing number of streams."""
    count = max(n // 400, 2)
    yield from (event for i in range(n // 2) for event in launched(i * 10, 10 * count, i + 1, 7 + i % count))


def late_launches(n: int) -> Iterator[Event]:
    """Yield launches that all come long before the GPU starts its first kernel."""
    yield from (event for i in range(n // 2) for event in launched(i * 10, 90, i + 1, 7, n * 5 + i * 80))


def idle(n: int) -> Iterator[Event]:
    """Yield kernels after each of which the GPU is idle while the host works, in steps of twenty kernels."""
    for i in range(n // 6):
        at = i * 100
        if i % 20 == 0:
            yield step(i // 20, at, 1999)
        yield from (
            x("python_function", "train.py(3): f", at, 98),
            op("aten::a", at + 1, 90),
            op("aten::b", at + 20, 30),
        )
        yield from launched(at + 4, 2, i + 1, start=8)


def overlapping_idle(n: int) -> Iterator[Event]:
    """Yield threads that launch on separate streams. Operators of all threads span the idle intervals."""
    for i in range(n // 4):
        yield from (
            op("aten::a", i * 20, 300, tid=i % 30 + 1),
            x("user_annotation", "b", i * 20 + 1, 240, tid=i % 30 + 1),
        )
        yield from launched(i * 20, 3, i + 1, 7 + i % 30, tid=i % 30 + 1)


def collectives(n: int) -> Iterator[Event]:
    """Yield collectives that run concurrently with kernels."""
    for i in range(n // 4):
        yield from launched(i * 100, 30, i + 1, 9, 60, _NCCL)
        yield from launched(i * 100 + 9, 90, 10**6 + i)


def communicators(n: int) -> Iterator[Event]:
    """Yield collectives of a growing number of process groups, with Kineto's arguments."""
    count = max(n // 100, 2)
    for i in range(n // 4):
        group = i % count
        said = {"Process Group Name": str(group), "Process Group Ranks": f"[{group}, {group + 1}]", "Group size": 2}
        said |= {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float"}
        yield from (op("c10d::allreduce_", i * 100, 50), x("cpu_op", "record_param_comms", i * 100 + 1, 40, **said))
        start, done = launched(i * 100 + 2, 30, i + 1, 9, 60, _NCCL)
        yield from (start, {**done, "args": {**done["args"], **said}})


def memory_events(n: int) -> Iterator[Event]:
    """Yield the allocator's events, each inside an operator."""
    for i in range(n // 2):
        sizes = {
            "Bytes": 512 if i % 2 else -512,
            "Addr": 1000 + i // 2,
            "Total Allocated": i * 10,
            "Total Reserved": 10**6,
        }
        args = {**sizes, "Device Id": 0, "Device Type": 1}
        where = {"pid": 100, "tid": 1, "ts": i * 100 + 3}
        yield op("a", i * 100, 60)
        yield {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", **where, "args": args}


def arrows(n: int) -> Iterator[Event]:
    """Yield forward and backward operators, linked by arrows."""
    back = n * 100
    for i in range(n // 4):
        yield from (op("a", i * 100, 60), op("aBackward", back - i * 100, 60, tid=2))
        for ph, tid, at in (("s", 1, i * 100), ("f", 2, back - i * 100)):
            yield {"ph": ph, "bp": "e", "id": i, "cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "tid": tid, "ts": at}


def graph_replays(n: int) -> Iterator[Event]:
    """Yield replays of a CUDA graph of ten kernels."""
    for i in range(n // 11):
        yield call("cudaGraphLaunch", i * 200, 8, i + 1)
        for k in range(10):
            node = kernel(f"k{k}", i * 200 + 20 + k * 15, 14, i + 1)
            yield {**node, "args": {**node["args"], "graph node id": 100 + k, "graph id": 3}}


def copies(n: int) -> Iterator[Event]:
    """Yield copies in both directions, in addition to kernels. Some copies block the host."""
    for i in range(n // 4):
        yield from launched(i * 100, 30, i + 1)
        kind = ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)")[i % 2]
        yield call(("cudaMemcpyAsync", "cudaMemcpy")[i % 2], i * 100 + 40, 55, 10**7 + i)
        yield x("gpu_memcpy", kind, i * 100 + 50, 40, 8, 0, correlation=10**7 + i, stream=8, device=0, bytes=4096)


def shuffled(n: int) -> list[Event]:
    """Return the events of `steps` in random order, because some writers do not sort events."""
    events = list(steps(n))
    random.Random(0).shuffle(events)
    return events


def long_names(n: int) -> Iterator[Event]:
    """Yield names of a thousand characters, as of C++ templates. A twentieth of the kernels' names are distinct."""
    for i in range(n // 4):
        new = (
            f"elementwise_{i % max(n // 80, 1)}<" + ", ".join(f"at::native::Functor{k}<float>" for k in range(33)) + ">"
        )
        yield op(f"aten::op_{i % 90}", i * 100, 95)
        yield x(
            "python_function", f"/usr/lib/python3/site-packages/{'deep/' * 150}file_{i % 70}.py(1): f", i * 100 + 1, 90
        )
        yield from launched(i * 100 + 2, 60, i + 1, name=f"void {new}(float*)")


def uneven(n: int) -> Iterator[Event]:
    """Yield durations of a few ns and some of seconds, with equal starts. GPU work is queued for a long time."""
    for i in range(n // 5):
        long = i % 97 == 0
        yield op("aten::a", i * 50, 49 if not long else 49.999)
        yield op("aten::b", i * 50, 0.001)
        yield x("user_annotation", "part", i * 50, 4800 if long else 0.5, tid=2)
        yield from launched(i * 50, 1e6 if long else 0.003, i + 1, 7 + i % 3, start=60 + (i // 97) * 1e6)


def crossing_annotations(n: int) -> Iterator[Event]:
    """Yield annotations, of which each twentieth ends after later ones have started."""
    for i in range(n // 3):
        yield x("user_annotation", "part", i * 50, 1010 if i % 20 == 0 else 0.5, tid=2)
        yield from launched(i * 50, 40, i + 1)


def polls(n: int) -> Iterator[Event]:
    """Yield steps in which the host polls with event queries until a kernel has ended."""
    for i in range(n // 12):
        at, c = i * 1000, i * 20
        yield step(i, at, 990)
        yield from (call("cudaLaunchKernel", at + 10, 5, c), kernel("gemm", at + 20, 480, c))
        yield call("cudaEventRecord", at + 16, 2, c + 1)
        yield from (call("cudaEventQuery", at + 30 + k * 68, 1, c + 2 + k) for k in range(8))


def graph_captures(n: int) -> Iterator[Event]:
    """Yield captures of CUDA graphs, one after the other."""
    for i in range(n // 8):
        at, c = i * 200, i * 20
        yield call("cudaStreamBeginCapture", at, 3, c)
        yield from (call("cudaLaunchKernel", at + 10 + k * 10, 4, c + 1 + k) for k in range(5))
        yield call("cudaStreamEndCapture", at + 80, 3, c + 6)
        yield op("a", at + 90, 50)


def optimizers(n: int) -> Iterator[Event]:
    """Yield two steps of many updates, each with a launch inside and outside its optimizer's call, and data loading."""
    yield from (step(i, i * (n // 12) * 1000, (n // 12) * 1000 - 1) for i in range(2))
    for i in range(n // 6):
        yield x("user_annotation", "Optimizer.step#Adam.step", i * 1000 + 500, 300)
        yield x("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", i * 1000 + 850, 100)
        yield from launched(i * 1000 + 10, 50, 2 * i)
        yield from launched(i * 1000 + 600, 50, 2 * i + 1)


AXES: dict[str, Callable[[int], Any]] = {
    axis.__name__.replace("_", " "): axis
    for axis in (
        *(operators, steps, waits, syncs, streams, threads, depth, names, annotation_pairs, overlapping_streams),
        *(late_launches, collectives, memory_events, arrows, graph_replays),
        *(
            idle,
            overlapping_idle,
            processes,
            devices,
            communicators,
            nested_annotations,
            shapes,
            modules,
            copies,
            shuffled,
            streams_waited_for,
            long_names,
            uneven,
            crossing_annotations,
            polls,
            graph_captures,
            optimizers,
        ),
    )
}
"""The functions by name. The floor is defined for the first fifteen. The others occur in real files, too."""
