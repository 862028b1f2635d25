"""A validated plan: the input of the engines and the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

from pipelines.schedule.plan.plan import PipelineTask, TaskSchedule, stream_key


@dataclass
class CheckedPlan:
    """A legal plan with every reference resolved to a name. `schedule` keeps the order of declaration."""

    schedule: dict[str, TaskSchedule]
    tasks: dict[str, PipelineTask]  # may lack names that the plan gives without a PipelineTask
    intra: dict[str, tuple[str, ...]]  # task -> tasks of the same iteration it depends on
    inter: dict[str, tuple[str, ...]]  # task -> tasks of the previous iteration it depends on
    depth: int  # max(stage) + 1
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Every task, in order of declaration."""
        return list(self.schedule)

    def stage(self, name: str) -> int:
        """Returns the task's stage."""
        return self.schedule[name].stage

    def stream(self, name: str) -> Any:
        """Returns the identity of the task's stream."""
        return stream_key(self.schedule[name].stream)

    def dependencies(self, name: str, iteration: int) -> list[tuple[str, int]]:
        """Returns what the task of an iteration depends on, as (task, iteration). Iteration 0 has no predecessor (SWP-10)."""
        same = [(dep, iteration) for dep in self.intra[name]]
        return same + [(dep, iteration - 1) for dep in self.inter[name]] if iteration else same


def ancestors(intra: dict[str, tuple[str, ...]]) -> dict[str, set[str]]:
    """For each task, everything it depends on in its own iteration, directly or indirectly. Needs acyclic input."""
    known: dict[str, set[str]] = {}
    for name in TopologicalSorter(intra).static_order():
        known[name] = set(intra[name]).union(*(known[d] for d in intra[name]))
    return known
