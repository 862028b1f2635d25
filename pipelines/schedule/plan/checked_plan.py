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
    tasks: dict[str, PipelineTask]  # only names for which the plan has a PipelineTask
    intra: dict[str, tuple[str, ...]]  # task -> tasks of the same iteration that it depends on
    inter: dict[str, tuple[str, ...]]  # task -> tasks of the previous iteration that it depends on
    depth: int  # max(stage) + 1
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Return the names of all tasks, in order of declaration."""
        return list(self.schedule)

    def stage(self, name: str) -> int:
        """Return the task's stage."""
        return self.schedule[name].stage

    def stream(self, name: str) -> Any:
        """Return the identity of the task's stream."""
        return stream_key(self.schedule[name].stream)

    def dependencies(self, name: str, iteration: int) -> list[tuple[str, int]]:
        """Return the dependencies of a task in an iteration, as (task, iteration). Iteration 0 has no predecessor."""
        same = [(dep, iteration) for dep in self.intra[name]]
        return same + [(dep, iteration - 1) for dep in self.inter[name]] if iteration else same


def ancestors(intra: dict[str, tuple[str, ...]]) -> dict[str, set[str]]:
    """Return, for each task, all direct and indirect dependencies within an iteration. `intra` must be acyclic."""
    ancestors_by_task: dict[str, set[str]] = {}
    for name in TopologicalSorter(intra).static_order():
        ancestors_by_task[name] = set(intra[name]).union(*(ancestors_by_task[d] for d in intra[name]))
    return ancestors_by_task
