"""Enumerates every legal assignment of tasks to stages and streams, each once."""

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
    """The space of legal assignments. Names are in a topological order of `intra`; the tuples above use that order."""

    names: Sequence[str]
    intra: Deps
    inter: Deps
    units: Sequence[int]
    """Unit of each task: tasks of one unit are always on one stream. Numbered from 0 by first use."""
    max_depth: int
    max_streams: int

    def assignments(self) -> Iterator[Assignment]:
        """Yields all assignments lazily: fifteen tasks already have far too many stream partitions to enumerate."""
        for stages in self.stage_choices():
            for choice in self.stream_choices():
                yield Assignment(stages, choice)

    def stage_choices(self) -> Iterator[tuple[int, ...]]:
        """Yields stage vectors that satisfy corollaries 1 and 3 (SWP-17, SWP-19) and leave no stage empty."""
        for stages in self._stages(()):
            if set(stages) == set(range(max(stages) + 1)):
                yield stages

    def stream_choices(self) -> Iterator[tuple[int, ...]]:
        """Yields partitions of the units into streams: the first unit is on stream 0, a new stream gets the next
        number.
        """
        for streams in _partitions((), max(self.units) + 1, self.max_streams):
            yield tuple(streams[unit] for unit in self.units)

    def is_legal(self, assignment: Assignment) -> bool:
        """Whether the assignment is legal, that is, whether `assignments` yields it up to a renumbering of streams."""
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
        known = dict(zip(self.names, chosen, strict=False))
        low, high = self._range(task, known)
        for stage in range(low, high + 1):
            yield from self._stages((*chosen, stage))

    def _range(self, task: str, known: Mapping[str, int]) -> tuple[int, int]:
        """Returns the lowest and highest stage the task may have, given the stages of the tasks before it."""
        low = max([0, *(known[dep] for dep in self.intra[task])])
        low = max([low, *(known[dep] - 1 for dep in self.inter[task] if dep in known)])
        users = [known[user] + 1 for user in known if task in self.inter[user]]
        return low, min([self.max_depth - 1, *users])


def _partitions(chosen: tuple[int, ...], length: int, most: int) -> Iterator[tuple[int, ...]]:
    if len(chosen) == length:
        yield chosen
        return
    for stream in range(min(max(chosen, default=-1) + 2, most)):
        yield from _partitions((*chosen, stream), length, most)


def numbered(streams: Sequence[int]) -> tuple[int, ...]:
    """Returns the same partition with streams renumbered in order of first use."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(stream, len(numbers)) for stream in streams)


def neighbours(space: Space, at: Assignment) -> Iterator[Assignment]:
    """Yields legal assignments one step away: one task moved by one stage, or one unit moved to another stream."""
    for place, stage in enumerate(at.stages):
        for other in (stage - 1, stage + 1):
            moved = Assignment((*at.stages[:place], other, *at.stages[place + 1 :]), at.streams)
            if other >= 0 and space.is_legal(moved):
                yield moved
    for unit in range(max(space.units) + 1):
        for stream in range(max(at.streams) + 2):
            streams = (stream if u == unit else s for u, s in zip(space.units, at.streams, strict=True))
            moved = Assignment(at.stages, numbered(tuple(streams)))
            if moved != at and space.is_legal(moved):
                yield moved
