"""Threads that hold nothing up: threads whose calls only query GPU work, and threads that no other thread waits for."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from tests.critical_path.whatif.windows import loaded
from tests.harness import call, kernel, op, x

Events = list[dict[str, Any]]
WORK: Events = [
    *(op("step", 0, 40), call("cudaLaunchKernel", 10, 5, 1), kernel("nccl", 20, 900, 1, stream=20)),
    *(op("end", 50, 900), call("cudaDeviceSynchronize", 60, 870, 2)),
]


def every(us: int, *events: Any) -> Events:
    """Repeat calls on thread 2 from 5 to 905 us."""
    return [
        make(at + 3 * place, 1000 + 10 * at + place) for at in range(5, 905, us) for place, make in enumerate(events)
    ]


def named(name: str, cat: str = "cuda_runtime") -> Any:
    return lambda at, correlation: call(name, at, 2, correlation, tid=2, cat=cat)


def operator(at: int, _: int) -> dict[str, Any]:
    return op("log", at, 2, tid=2)


EXCHANGE = named("cudaThreadExchangeStreamCaptureMode")
IDLE = {
    "the watchdog of NCCL": every(100, EXCHANGE, named("cudaEventQuery"), EXCHANGE),
    "and of RCCL": every(100, named("hipThreadExchangeStreamCaptureMode"), named("hipEventQuery")),
    "of the driver": every(100, named("cuThreadExchangeStreamCaptureMode", "cuda_driver"), named("cuEventQuery", "cuda_driver")),
    "another name": every(50, named("cudaGetDevice")),
    "a logger": every(100, operator),
    "one that asks and logs": every(100, operator, named("cudaEventQuery")),
    "one that waits for the GPU, and for which nothing waits": [call("cudaStreamSynchronize", 30, 893, 7, tid=2)],
}  # fmt: skip


def without(target: str, *traces: Events) -> list[float]:
    """Return the duration of each trace without the target's work, in us; the models run once."""
    lengths = []
    for window in loaded(traces):
        (compared,) = what_if(window, [Scenario(((target, 0.0),))])
        assert compared.before.length_us == 950
        lengths.append(compared.after.length_us)
    return lengths


@pytest.mark.slow  # 6 s
def test_such_a_thread_holds_nothing_up() -> None:
    alone, *beside = without("nccl", WORK, *([*WORK, *events] for events in IDLE.values()))
    # A query is a blocking call, and the shortest blocking call determines the time of a return.
    assert alone < 110 and dict(zip(IDLE, beside, strict=True)) == pytest.approx(dict.fromkeys(IDLE, alone), abs=1)


@pytest.mark.slow  # 5 s
def test_a_thread_that_works_or_is_waited_for_does() -> None:
    launches = [call("cudaLaunchKernel", 850, 5, 7, tid=2), kernel("copy", 856, 3, 7, stream=24)]
    # The main thread waits in a frame named after a wait, and continues when the other thread has stopped.
    loader: Events = [
        *(op("step", 0, 20), x("python_function", "threading.py(355): wait", 25, 878)),
        *(op("decode", 30, 870, tid=2), op("train", 905, 45), call("cudaLaunchKernel", 910, 5, 1), kernel("nccl", 920, 30, 1)),
    ]  # fmt: skip
    assert min(without("nccl", [*WORK, *IDLE["a logger"], *launches], loader)) > 850


@pytest.mark.slow  # 2 s; test_covers.py tests a watchdog
def test_without_gpu_work_all_threads_count() -> None:
    assert without("a", [op("a", 0, 100), op("b", 10, 940, tid=2)]) == [950]
