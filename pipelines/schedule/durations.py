"""Declared durations of tasks for simulation: a number, or a seeded distribution. All in integer nanoseconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Duration = int | Callable[[random.Random], float]
"""Nanoseconds, or something that draws them from a generator (the classes below, or a lambda); rounded to integers."""


@dataclass(frozen=True)
class Jitter:
    """Normal distribution, cut off at `floor_ns`."""

    mean_ns: int
    std_ns: int
    floor_ns: int = 0

    def __call__(self, rng: random.Random) -> int:
        return max(self.floor_ns, round(rng.gauss(self.mean_ns, self.std_ns)))


@dataclass(frozen=True)
class Spikes:
    """Nearly always `base_ns`; with `probability`, `spike_ns`: the occasional slow PCIe copy or all-to-all."""

    base_ns: int
    spike_ns: int
    probability: float

    def __call__(self, rng: random.Random) -> int:
        return self.spike_ns if rng.random() < self.probability else self.base_ns


def drawn(tasks: Iterable[str], declared: Mapping[Any, Duration], iterations: int, seed: int) -> dict[str, list[int]]:
    """Returns the durations of every task and iteration, ns.

    Each task has its own generator, seeded with its name, so that two plans or engines with the same tasks get the same
    durations. Keys of `declared` are names or tasks. Raises ValueError for a task without a duration and for a negative
    one.
    """
    by_name = {getattr(key, "name", key): value for key, value in declared.items()}
    if missing := [task for task in tasks if task not in by_name]:
        raise ValueError(f"no duration declared for {', '.join(missing)}; add the name and its nanoseconds")
    rows = {task: _row(by_name[task], iterations, random.Random(f"{seed}/{task}")) for task in tasks}
    if negative := [task for task, row in rows.items() if min(row, default=0) < 0]:
        raise ValueError(f"negative duration of {', '.join(negative)}; a task must take 0 ns or more")
    return rows


def _row(declared: Duration, iterations: int, rng: random.Random) -> list[int]:
    if callable(declared):
        return [round(declared(rng)) for _ in range(iterations)]
    return [round(declared)] * iterations
