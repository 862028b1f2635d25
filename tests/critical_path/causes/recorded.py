"""The same host program with and without a profiler of known cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.harness import call, kernel, op, x

Event = dict[str, Any]
COST = {"operator": 2.0, "call": 3.0, "frame": 0.5, "annotation": 4.0}
"""Cost of recording an event on this host, in us. Half of a call's cost is within the call."""


class Host:
    """One thread that launches on one stream, with times in us.

    `costs` is the cost of recording an event, by kind of event.
    """

    def __init__(self, costs: dict[str, float]) -> None:
        self.costs, self.at, self.gpu_free, self.launches = costs, 0.0, 0.0, 0
        self.events: list[Event] = []

    def work(self, us: float) -> None:
        """Advance the time without an event."""
        self.at += us

    def operator(self, name: str, body: Callable[[], None]) -> None:
        self._event("operator", lambda start, dur: op(name, start, dur), body)

    def frame(self, name: str, body: Callable[[], None]) -> None:
        self._event("frame", lambda start, dur: x("python_function", name, start, dur), body)

    def annotation(self, name: str, body: Callable[[], None]) -> None:
        self._event("annotation", lambda start, dur: x("user_annotation", name, start, dur), body)

    def launch(self, kernel_us: float) -> None:
        self.launches += 1
        number = self.launches
        self._event("call", lambda start, dur: call("cudaLaunchKernel", start, dur, number), lambda: self.work(2.5))
        begin = max(self.gpu_free, self.at + 1)
        self.gpu_free = round(begin + kernel_us, 3)
        self.events.append(kernel("gemm", begin, kernel_us, number))

    def synchronize(self) -> None:
        self.launches += 1
        number = self.launches

        def wait() -> None:
            self.at = max(self.at, self.gpu_free) + 1

        self._event("call", lambda start, dur: call("cudaDeviceSynchronize", start, dur, number), wait)

    def _event(self, kind: str, made: Callable[[float, float], Event], body: Callable[[], None]) -> None:
        cost = self.costs[kind]
        inside = cost / 2 if kind == "call" else 0.0
        self.at += (cost - inside) / 2
        start = round(self.at, 3)
        self.at += inside
        body()
        self.events.append(made(start, round(round(self.at, 3) - start, 3)))
        self.at += (cost - inside) / 2


def program(kernel_us: float, costs: dict[str, float], steps: int = 4) -> list[Event]:
    """Return steps of nested operators and Python functions that launch a kernel each, and a final synchronization."""
    host = Host(costs)

    def product() -> None:
        host.work(2)
        host.launch(kernel_us)
        host.work(2)

    def linear() -> None:
        host.work(3)
        host.operator("aten::addmm", product)
        host.work(3)

    def forward() -> None:
        host.work(4)
        host.frame("helper", lambda: host.work(1))  # too short to be in the graph
        host.operator("aten::linear", linear)
        host.work(2)

    def step() -> None:
        for _ in range(6):
            host.work(5)
            host.frame("forward", forward)

    for number in range(steps):
        host.annotation(f"ProfilerStep#{number}", step)
        host.work(6)
    host.synchronize()
    return host.events


def document(events: list[Event], costs: dict[str, float] | None = None, delay_us: float = 4.0) -> dict[str, Any]:
    """Return a trace of PyTorch's profiler.

    With `costs`, the trace contains the measured costs, and `delay_us` as the delay between the starts of nested
    operators.
    """
    trace: dict[str, Any] = {"schemaVersion": 1, "traceEvents": events}
    if costs is not None:
        measured = {f"{kind}_ns": 1000 * us for kind, us in costs.items()}
        trace["tracelake_profiler_cost"] = {**measured, "cheap_operator_ns": 1000 * delay_us}
    return trace
