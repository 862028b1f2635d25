"""Which stages and streams? Legal assignments, ranked by what the simulator says of them.

found = search([copy, forward, backward], [(forward, copy), (backward, forward)], durations, memory_limit=3)
engine = SWPipeline(found.best.plan)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pipelines.schedule.assignments import Assignment, Space, neighbours
from pipelines.schedule.durations import drawn
from pipelines.schedule.memory import peak_in_flight
from pipelines.schedule.order import serial_order
from pipelines.schedule.plan import PipelinePlan, TaskRef, TaskSchedule, name_of
from pipelines.schedule.predict import Prediction, prediction_of
from pipelines.schedule.simulated import simulate
from pipelines.schedule.simulator import stream_labels
from pipelines.schedule.validate import CheckedPlan, validate_plan

_ITERATIONS = 48
_ENUMERATED = 20_000
_SIMULATED = 600


@dataclass(frozen=True)
class Candidate:
    """A legal plan and what it is predicted to do."""

    plan: PipelinePlan
    prediction: Prediction
    peak_memory: float
    """As `memory.peak_in_flight`: iterations in flight, or in the units of `memory`."""

    @property
    def rank(self) -> tuple:
        """Smaller is better: period, memory, depth, streams, then stages and streams by name."""
        settings = {name_of(ref): (s.stage, s.stream) for ref, s in self.plan.schedule.items()}
        streams = {stream for _, stream in settings.values()}
        depth = max(stage for stage, _ in settings.values()) + 1
        return (self.prediction.period_ns, self.peak_memory, depth, len(streams), sorted(settings.items()))


@dataclass(frozen=True)
class Found:
    """The outcome of a search."""

    candidates: list[Candidate]
    """The best, best first; empty where nothing fits into the memory."""
    exhaustive: bool
    """Every legal assignment was considered: there is no better one than the first. False: a local search."""
    simulated: int
    """How many plans were simulated; the others cannot be better, by a bound on their period."""

    @property
    def best(self) -> Candidate:
        """ValueError: nothing fits into the memory."""
        if not self.candidates:
            raise ValueError("no legal assignment fits into memory_limit: raise it, or make results smaller")
        return self.candidates[0]


def search(
    tasks: Iterable[TaskRef],
    deps: Iterable[tuple[TaskRef, TaskRef]],
    durations: Mapping[Any, int],
    memory_limit: float | None = None,
    *,
    inter_deps: Iterable[tuple[TaskRef, TaskRef]] = (),
    memory: Mapping[Any, float] | None = None,
    resources: Mapping[Any, str] | None = None,
    max_depth: int = 4,
    max_streams: int | None = None,
    keep: int = 10,
    order: str = "ready_first",
    submit_ns: int | Mapping[Any, int] = 0,
    retire: str = "finished",
) -> Found:
    """The best `keep` assignments of stages and streams for SWPipeline.

    `deps` and `inter_deps`: (task, depends_on), as in a plan. `durations`: fixed, ns. `memory_limit`: the most that may
    be in flight, in iterations, or in the units of `memory` (task → size of its result). `resources`: task → what it
    runs on; tasks of one resource stay on one stream. Without it streams are taken to be independent hardware, and
    tasks that share a GPU's compute units get streams of their own that gain nothing. `order`, `submit_ns`, `retire`:
    as for `simulate`.

    Up to 20000 assignments are considered all; where there are more, a local search takes its steps from a few plain
    starts, and `exhaustive` is False. PlanError: the dependencies are wrong (a cycle, an unknown name).
    """
    names = list(tasks)
    base = PipelinePlan({ref: TaskSchedule() for ref in names}, list(deps), list(inter_deps), None)
    checked = validate_plan(base)
    space = _space(checked, resources, max_depth, max_streams)
    simulation = {"order": order, "submit_ns": submit_ns, "retire": retire}
    judge = _Judge(base, checked, space, durations, memory, memory_limit, simulation)
    choices = list(islice(space.assignments(), _ENUMERATED + 1))
    exhaustive = len(choices) <= _ENUMERATED
    if exhaustive:
        judge.all_of(choices, keep)
    else:
        judge.climb(_starts(space))
    best = sorted(judge.fitting(), key=lambda candidate: candidate.rank)[:keep]
    return Found(best, exhaustive, len(judge.seen))


def _space(checked: CheckedPlan, resources: Mapping[Any, str] | None, max_depth: int, max_streams: int | None) -> Space:
    if max_depth < 1 or (max_streams is not None and max_streams < 1):
        raise ValueError(f"max_depth={max_depth}, max_streams={max_streams}: a plan has at least one of each")
    names = serial_order(checked)
    where = {getattr(key, "name", key): resource for key, resource in (resources or {}).items()}
    numbers: dict[tuple[str, str], int] = {}
    keys = [("resource", where[name]) if name in where else ("task", name) for name in names]
    units = [numbers.setdefault(key, len(numbers)) for key in keys]
    return Space(names, checked.intra, checked.inter, units, max_depth, max_streams or len(names))


def _starts(space: Space) -> Iterator[Assignment]:
    """Serial; a stage and a stream for each step of the longest chain, as far as allowed."""
    yield Assignment((0,) * len(space.names), (0,) * len(space.names))
    own = tuple(min(unit, space.max_streams - 1) for unit in space.units)
    yield Assignment((0,) * len(space.names), own)
    for stages in islice(space.stage_choices(), 0, 2000, 50):
        yield Assignment(stages, own)


class _Judge:
    """Simulates assignments, each once."""

    def __init__(
        self,
        base: PipelinePlan,
        checked: CheckedPlan,
        space: Space,
        durations: Mapping[Any, int],
        memory: Mapping[Any, float] | None,
        limit: float | None,
        simulation: Mapping[str, Any],
    ) -> None:
        self.base, self.checked, self.space = base, checked, space
        self.durations = {name: row[0] for name, row in drawn(checked.names, durations, 1, 0).items()}
        self.memory, self.limit, self.simulation = memory, limit, simulation
        self.rest = self._rest()
        self.seen: dict[Assignment, Candidate] = {}

    def fits(self, candidate: Candidate) -> bool:
        return self.limit is None or candidate.peak_memory <= self.limit

    def fitting(self) -> list[Candidate]:
        return [candidate for candidate in self.seen.values() if self.fits(candidate)]

    def all_of(self, choices: Iterable[Assignment], keep: int) -> None:
        """Simulate by rising bound until no bound is below the period of the worst that is kept."""
        periods: list[float] = []
        for bound, choice in sorted(((self.bound(c), c) for c in choices), key=lambda pair: pair[0]):
            if len(periods) >= keep and bound > periods[keep - 1]:
                return
            candidate = self.candidate(choice)
            if self.fits(candidate):
                periods = sorted([*periods, candidate.prediction.period_ns])[:keep]

    def climb(self, starts: Iterable[Assignment]) -> None:
        """From each start to the best neighbour, as long as that is better."""
        for start in starts:
            at = start
            while at is not None and len(self.seen) < _SIMULATED:
                at = self._step(at)

    def _step(self, at: Assignment) -> Assignment | None:
        def key(choice: Assignment) -> tuple:
            candidate = self.candidate(choice)
            return (not self.fits(candidate), candidate.rank)

        best = min(neighbours(self.space, at), key=key, default=at)
        return best if key(best) < key(at) else None

    def candidate(self, choice: Assignment) -> Candidate:
        if choice not in self.seen:
            plan = self._plan(choice)
            timeline = simulate(plan, self.durations, iterations=_ITERATIONS, **self.simulation)
            prediction = prediction_of(timeline, stream_labels(validate_plan(plan)))
            self.seen[choice] = Candidate(plan, prediction, peak_in_flight(timeline, self.memory))
        return self.seen[choice]

    def _plan(self, choice: Assignment) -> PipelinePlan:
        places = dict(zip(self.space.names, zip(choice.stages, choice.streams, strict=True), strict=True))
        schedule: dict[TaskRef, TaskSchedule] = {}
        for ref in self.base.schedule:
            stage, stream = places[name_of(ref)]
            schedule[ref] = TaskSchedule(stage=stage, stream=f"stream{stream}")
        return replace(self.base, schedule=schedule)

    def bound(self, choice: Assignment) -> float:
        """No period can be shorter: the busiest stream, and for each stage what follows the wait for a place.

        A task of stage s of iteration i is submitted when iteration i + s - depth is retired, so a chain from it to the
        iteration's end takes at most depth - s periods. Where progress() does not wait for the device only the first
        holds.
        """
        loads: dict[int, int] = {}
        for name, stream in zip(self.space.names, choice.streams, strict=True):
            loads[stream] = loads.get(stream, 0) + self.durations[name]
        bounds: list[float] = list(loads.values())
        if self.simulation["retire"] == "finished":
            stage = dict(zip(self.space.names, choice.stages, strict=True))
            depth = max(choice.stages) + 1
            bounds += [rest / (depth - stage[name]) for name, rest in self.rest.items()]
        return max(bounds)

    def _rest(self) -> dict[str, int]:
        """Longest chain of dependencies from each task to the iteration's end, ns."""
        rest = dict.fromkeys(self.space.names, 0)
        for name in reversed(self.space.names):
            rest[name] += self.durations[name]
            for dep in self.space.intra[name]:
                rest[dep] = max(rest[dep], rest[name])
        return rest
