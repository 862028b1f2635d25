"""Delays injected into a task, such as the occasional slow copy that a pipeline should absorb."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.simulation.durations import drawn


@dataclass(frozen=True)
class Late:
    """A fixed time plus an exponentially distributed delay, ns: usually short, occasionally several times the mean."""

    base_ns: int
    mean_delay_ns: float

    def __call__(self, rng: random.Random) -> float:
        return self.base_ns + (rng.expovariate(1 / self.mean_delay_ns) if self.mean_delay_ns else 0.0)


def delays(task: str, mean_us: float, iterations: int, seed: int) -> list[int]:
    """Return the delay of every iteration, ns. Delays are equal on all devices, including the simulated device."""
    return drawn([task], {task: Late(0, mean_us * 1e3)}, iterations, seed)[task]


def delayed(task: PipelineTask, delays_ns: Sequence[int], pause: Callable[[int], None]) -> PipelineTask:
    """Return the task with a pause before its function."""

    def late(ctx: IterContext) -> None:
        pause(delays_ns[ctx.iter_idx % len(delays_ns)])
        task.fn(ctx)

    return replace(task, fn=late)


def pause_on(device: Any) -> Callable[[int], None]:
    """Return a function that blocks the current stream for a number of ns.

    On a GPU, it launches a spinning kernel. On a CPU, where a stream is a thread, it sleeps.
    """
    if device.type != "cuda":
        return lambda ns: time.sleep(ns / 1e9)
    return partial(_spin, _cycles_per_ns())


def _spin(cycles_per_ns: float, ns: int) -> None:
    import torch

    if cycles := round(ns * cycles_per_ns):
        torch.cuda._sleep(cycles)


def _cycles_per_ns() -> float:
    """Measure the rate of the clock that `_sleep` counts, cycles per ns. The driver reports a different clock."""
    import torch

    cycles, shortest_ms = 10_000_000, float("inf")
    for _ in range(3):  # during the first call, the GPU is still clocked down
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        torch.cuda._sleep(cycles)
        after.record()
        after.synchronize()
        shortest_ms = min(shortest_ms, before.elapsed_time(after))
    return cycles / (shortest_ms * 1e6)
