"""Enumeration of all legal assignments of tasks to stages and streams, without duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Deps = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The stage and the stream number of every task."""

    stages: tuple[int, ...]
    streams: tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """The space of legal assignments.

    `names` are in a topological order of `intra`. The tuples of `Assignment` have the same order.
    """

    names: Sequence[str]
    intra: Deps
    inter: Deps
    units: Sequence[int]
    """Unit of each task, numbered from 0 in order of first use. Tasks of one unit are always on one stream."""
    max_depth: int
    max_streams: int

    def assignments(self) -> Iterator[Assignment]:
        """Yield all assignments lazily, because even fifteen tasks have far too many stream partitions to enumerate."""
        for stages in self.stage_choices():
            for choice in self.stream_choices():
                yield Assignment(stages, choice)

    def stage_choices(self) -> Iterator[tuple[int, ...]]:
        """Yield the tuples of stages that satisfy corollaries 1 and 3 and leave no stage empty."""
        for stages in self._stages(()):
            if set(stages) == set(range(max(stages) + 1)):
                yield stages

    def stream_choices(self) -> Iterator[tuple[int, ...]]:
        """Yield the stream of each task, for all partitions of the units into streams.

        The first unit is on stream 0. Each new stream gets the next number.
        """
        for streams in _partitions((), max(self.units) + 1, self.max_streams):
            yield tuple(streams[unit] for unit in self.units)

    def is_legal(self, assignment: Assignment) -> bool:
        """Return whether `assignments` yields the assignment, up to a renumbering of streams."""
        stages = dict(zip(self.names, assignment.stages, strict=True))
        return (
            set(assignment.stages) == set(range(max(assignment.stages) + 1))
            and max(assignment.stages) < self.max_depth
            and len(set(assignment.streams)) <= self.max_streams
            and all(stages[dep] <= stages[task] for task in self.names for dep in self.intra[task])
            and all(stages[dep] - stages[task] <= 1 for task in self.names for dep in self.inter[task])
        )

    def _stages(self, chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == len(self.names):
            yield chosen
            return
        task = self.names[len(chosen)]
        stage_by_task = dict(zip(self.names, chosen, strict=False))
        low, high = self._range(task, stage_by_task)
        for stage in range(low, high + 1):
            yield from self._stages((*chosen, stage))

    def _range(self, task: str, stage_by_task: Mapping[str, int]) -> tuple[int, int]:
        """Return the lowest and highest legal stage of a task. `stage_by_task`: stages of the earlier tasks."""
        low = max([0, *(stage_by_task[dep] for dep in self.intra[task])])
        low = max([low, *(stage_by_task[dep] - 1 for dep in self.inter[task] if dep in stage_by_task)])
        users = [stage_by_task[user] + 1 for user in stage_by_task if task in self.inter[user]]
        return low, min([self.max_depth - 1, *users])


def _partitions(chosen: tuple[int, ...], length: int, max_streams: int) -> Iterator[tuple[int, ...]]:
    if len(chosen) == length:
        yield chosen
        return
    for stream in range(min(max(chosen, default=-1) + 2, max_streams)):
        yield from _partitions((*chosen, stream), length, max_streams)


def numbered(streams: Sequence[int]) -> tuple[int, ...]:
    """Return the same partition with streams renumbered in order of first use."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(stream, len(numbers)) for stream in streams)


def neighbours(space: Space, at: Assignment) -> Iterator[Assignment]:
    """Yield the legal assignments that differ by one task moved by one stage, or by one unit moved to another stream."""
    for index, stage in enumerate(at.stages):
        for new_stage in (stage - 1, stage + 1):
            candidate = Assignment((*at.stages[:index], new_stage, *at.stages[index + 1 :]), at.streams)
            if new_stage >= 0 and space.is_legal(candidate):
                yield candidate
    for unit in range(max(space.units) + 1):
        for stream in range(max(at.streams) + 2):
            streams = (stream if u == unit else s for u, s in zip(space.units, at.streams, strict=True))
            candidate = Assignment(at.stages, numbered(tuple(streams)))
            if candidate != at and space.is_legal(candidate):
                yield candidate
