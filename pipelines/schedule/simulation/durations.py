"""Declared durations of tasks for simulation: numbers or seeded distributions, in integer nanoseconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

from pipelines.schedule.plan.plan import by_name

Duration = int | Callable[[random.Random], float]
"""Nanoseconds, or a callable that draws them from a generator (the classes below, or a lambda). Rounded to integers."""


@dataclass(frozen=True)
class Jitter:
    """Normal distribution, with values below `floor_ns` replaced by `floor_ns`."""

    mean_ns: int
    std_ns: int
    floor_ns: int = 0

    def __call__(self, rng: random.Random) -> int:
        return max(self.floor_ns, round(rng.gauss(self.mean_ns, self.std_ns)))


@dataclass(frozen=True)
class Spikes:
    """Duration `spike_ns` with `probability`, otherwise `base_ns`, such as an occasionally slow PCIe copy."""

    base_ns: int
    spike_ns: int
    probability: float

    def __call__(self, rng: random.Random) -> int:
        return self.spike_ns if rng.random() < self.probability else self.base_ns


def drawn(tasks: Iterable[str], declared: Mapping[Any, Duration], iterations: int, seed: int) -> dict[str, list[int]]:
    """Return the durations of every task and iteration, ns.

    Keys of `declared` are names or tasks. Raise ValueError if a task has no duration or a negative duration.
    """
    duration_by_task = by_name(declared)
    if missing := [task for task in tasks if task not in duration_by_task]:
        raise ValueError(f"no duration declared for {', '.join(missing)}; add the name and its nanoseconds")
    durations = {task: list(islice(draws(task, duration_by_task[task], seed), iterations)) for task in tasks}
    if negative := [task for task, drawn_ns in durations.items() if min(drawn_ns, default=0) < 0]:
        raise ValueError(f"negative duration of {', '.join(negative)}; a task must take 0 ns or more")
    return durations


def draws(task: str, declared: Duration, seed: int) -> Iterator[int]:
    """Yield a task's durations, ns, one per iteration, endlessly.

    Each task has its own generator, seeded with its name, so that two plans or engines with the same tasks get the same
    durations.
    """
    if callable(declared):
        rng = random.Random(f"{seed}/{task}")
        while True:
            yield round(declared(rng))
    yield from repeat(round(declared))
