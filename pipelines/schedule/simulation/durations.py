"""Declared durations of tasks for simulation: a number, or a seeded distribution. All in integer nanoseconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

from pipelines.schedule.plan.plan import by_name

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

    Keys of `declared` are names or tasks. Raises ValueError for a task without a duration and for a negative
    one.
    """
    given = by_name(declared)
    if missing := [task for task in tasks if task not in given]:
        raise ValueError(f"no duration declared for {', '.join(missing)}; add the name and its nanoseconds")
    rows = {task: list(islice(draws(task, given[task], seed), iterations)) for task in tasks}
    if negative := [task for task, row in rows.items() if min(row, default=0) < 0]:
        raise ValueError(f"negative duration of {', '.join(negative)}; a task must take 0 ns or more")
    return rows


def draws(task: str, declared: Duration, seed: int) -> Iterator[int]:
    """Yields a task's durations, ns, one per iteration and without end.

    Each task has its own generator, seeded with its name, so that two plans or engines with the same tasks get the same
    durations.
    """
    if callable(declared):
        rng = random.Random(f"{seed}/{task}")
        while True:
            yield round(declared(rng))
    yield from repeat(round(declared))
