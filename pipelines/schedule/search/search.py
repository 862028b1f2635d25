"""Searches for the best stages and streams: legal assignments, ranked by simulation.

found = search([copy, forward, backward], [(forward, copy), (backward, forward)], durations, memory_limit=3)
engine = SWPipeline(found.best.plan)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any

from pipelines.schedule.engine.order import serial_order
from pipelines.schedule.plan.plan import PipelinePlan, TaskRef, TaskSchedule, by_name, name_of
from pipelines.schedule.plan.validate import CheckedPlan, validate_plan
from pipelines.schedule.search.assignments import Assignment, Space, neighbours
from pipelines.schedule.search.memory_in_flight import peak_in_flight
from pipelines.schedule.search.predict import Prediction, prediction_of
from pipelines.schedule.search.starts import starts
from pipelines.schedule.simulation.durations import drawn
from pipelines.schedule.simulation.simulated import simulate
from pipelines.schedule.simulation.simulator import stream_labels

_ITERATIONS = 48
_ENUMERATED = 20_000
_SIMULATED = 600
_PATIENCE = 25
_POLISHED = 100
"""How many more plans are examined for less memory and fewer streams once the period cannot get shorter."""


@dataclass(frozen=True)
class Candidate:
    """A legal plan and its prediction."""

    plan: PipelinePlan
    prediction: Prediction
    peak_memory: float
    """As `memory.peak_in_flight`: iterations in flight, or in the units of `memory`."""

    @property
    def rank(self) -> tuple:
        """Sort key; smaller is better: period, memory, depth, streams, then stages and streams by name."""
        settings = {name_of(ref): (s.stage, s.stream) for ref, s in self.plan.schedule.items()}
        streams = {stream for _, stream in settings.values()}
        depth = max(stage for stage, _ in settings.values()) + 1
        return (self.prediction.period_ns, self.peak_memory, depth, len(streams), sorted(settings.items()))


@dataclass(frozen=True)
class Found:
    """The outcome of a search."""

    candidates: list[Candidate]
    """The best candidates, best first; empty if nothing fits into the memory."""
    exhaustive: bool
    """Every legal assignment was considered: none is better than the first. False: a local search."""
    simulated: int
    """How many plans were simulated. The others were ruled out by a bound on their period, or not reached."""
    least_period_ns: float = 0.0
    """No legal assignment has a shorter period, whatever memory it takes: a first candidate that reaches it is optimal,
    whether or not the search was exhaustive.
    """

    @property
    def best(self) -> Candidate:
        """Returns the best candidate. Raises ValueError if nothing fits into the memory."""
        if not self.candidates:
            raise ValueError("no legal assignment fits within memory_limit: raise it, or make results smaller")
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
    """Returns the `keep` best assignments of stages and streams for SWPipeline.

    `deps` and `inter_deps`: (task, depends_on), as in a plan. `durations`: fixed, ns. `memory_limit`: the most that may
    be in flight, in iterations, or in the units of `memory` (task → size of its result). `resources`: task → the
    hardware it runs on; tasks of one resource stay on one stream. Without it, streams are assumed to be independent
    hardware, so tasks that share a GPU's compute units get streams of their own that gain nothing in reality. `order`,
    `submit_ns`, `retire`: as for `simulate`.

    Up to 20000 assignments are all considered. If there are more, `exhaustive` is False: a local search starts from
    greedy plans (starts.py), the most promising first, so its result is never worse than theirs, and then from points
    near the best. It considers only plans whose lower bound allows them to be better, and simulates at most 600. Raises
    PlanError for wrong dependencies (a cycle, an unknown name).
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
        judge.climb(starts(space, judge.durations, judge.rest))
    best = sorted(judge.fitting(), key=lambda candidate: candidate.rank)[:keep]
    return Found(best, exhaustive, len(judge.seen), judge.least())


def _space(checked: CheckedPlan, resources: Mapping[Any, str] | None, max_depth: int, max_streams: int | None) -> Space:
    if max_depth < 1 or (max_streams is not None and max_streams < 1):
        raise ValueError(f"max_depth={max_depth}, max_streams={max_streams}: a plan has at least one of each")
    names = serial_order(checked)
    where = by_name(resources or {})
    numbers: dict[tuple[str, str], int] = {}
    keys = [("resource", where[name]) if name in where else ("task", name) for name in names]
    units = [numbers.setdefault(key, len(numbers)) for key in keys]
    return Space(names, checked.intra, checked.inter, units, max_depth, max_streams or len(names))


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
        self.turn = self._turn()
        self.seen: dict[Assignment, Candidate] = {}
        self.most = _SIMULATED

    def fits(self, candidate: Candidate) -> bool:
        return self.limit is None or candidate.peak_memory <= self.limit

    def fitting(self) -> list[Candidate]:
        return [candidate for candidate in self.seen.values() if self.fits(candidate)]

    def all_of(self, choices: Iterable[Assignment], keep: int) -> None:
        """Simulate by rising lower bound until no bound is below the worst period that is kept."""
        periods: list[float] = []
        for bound, choice in sorted(((self.bound(c), c) for c in choices), key=lambda pair: pair[0]):
            if len(periods) >= keep and bound > periods[keep - 1]:
                return
            candidate = self.candidate(choice)
            if self.fits(candidate):
                periods = sorted([*periods, candidate.prediction.period_ns])[:keep]

    def climb(self, starts: Iterable[Assignment]) -> None:
        """Try all starts that can be the best; then climb from each, the best first, to a better neighbor while there
        is one.
        """
        begun, shortest = [], inf
        for bound, start in sorted(((self.bound(start), start) for start in starts), key=lambda pair: pair[0]):
            if bound > shortest:
                break
            candidate = self.candidate(start)
            begun.append(start)
            if self.fits(candidate):
                shortest = min(shortest, candidate.prediction.period_ns)
        for start in sorted(begun, key=self._key):
            if self._climb(start) and self.most < _SIMULATED:  # cannot get better
                return
        self._kick(random.Random(0))

    def _climb(self, at: Assignment) -> bool:
        """Climb to a local optimum. Returns False when the limit on simulations was reached."""
        while len(self.seen) < self.most:
            above = self._step(at)
            if above is None:
                return True
            at = above
        return False

    def _kick(self, rng: random.Random) -> None:
        """Take a few random steps away from the best and climb again, until that has not helped for a while."""
        idle = 0
        while idle < _PATIENCE and len(self.seen) < self.most:
            best = at = min(self.seen, key=self._key)
            for _ in range(rng.randint(2, 4)):
                at = rng.choice(list(neighbours(self.space, at)) or [at])
            self._climb(at)
            idle = 0 if min(self.seen, key=self._key) != best else idle + 1

    def _key(self, choice: Assignment) -> tuple:
        """Sort key; smaller is better. Which of two equal ones is taken does not matter."""
        candidate = self.candidate(choice)
        worth = candidate.rank[:4]
        return (False, *worth) if self.fits(candidate) else (True, candidate.peak_memory, *worth)

    def _step(self, at: Assignment) -> Assignment | None:
        """Returns the first better neighbor, tried in order of their lower bounds."""
        here = self._key(at)
        period = None if here[0] else self.candidate(at).prediction.period_ns
        near = [(self.bound(choice), choice) for choice in neighbours(self.space, at)]
        for bound, choice in sorted(near, key=lambda pair: pair[0]):
            if period is not None and bound > period:
                return None
            if choice not in self.seen and len(self.seen) >= self.most:
                return None
            if self._key(choice) < here:
                return choice
        return None

    def candidate(self, choice: Assignment) -> Candidate:
        if choice not in self.seen:
            plan = self._plan(choice)
            timeline = simulate(plan, self.durations, iterations=_ITERATIONS, **self.simulation)
            prediction = prediction_of(timeline, stream_labels(validate_plan(plan)))
            self.seen[choice] = found = Candidate(plan, prediction, peak_in_flight(timeline, self.memory))
            if self.fits(found) and prediction.period_ns <= self.least():  # only memory and streams can still differ
                self.most = min(self.most, len(self.seen) + _POLISHED)
        return self.seen[choice]

    def _plan(self, choice: Assignment) -> PipelinePlan:
        places = dict(zip(self.space.names, zip(choice.stages, choice.streams, strict=True), strict=True))
        schedule: dict[TaskRef, TaskSchedule] = {}
        for ref in self.base.schedule:
            stage, stream = places[name_of(ref)]
            schedule[ref] = TaskSchedule(stage=stage, stream=f"stream{stream}")
        return replace(self.base, schedule=schedule)

    def bound(self, choice: Assignment) -> float:
        """Returns a lower bound of the period.

        The maximum of: the busiest stream, the longest cycle through a dependency on the previous iteration, and for
        each stage the work that follows the wait for a free place.

        A task of stage s of iteration i is submitted when iteration i + s - depth is retired, so a chain from it to the
        iteration's end takes at most depth - s periods. That does not hold where progress() does not wait for the
        device.
        """
        bounds: list[float] = [self.turn, *self._loads(choice.streams)]
        if self.simulation["retire"] == "finished":
            stage = dict(zip(self.space.names, choice.stages, strict=True))
            depth = max(choice.stages) + 1
            bounds += [rest / (depth - stage[name]) for name, rest in self.rest.items()]
        return max(bounds)

    def _loads(self, places: Sequence[int]) -> Collection[int]:
        """Returns the work on each stream or unit, ns; `places`: that of each task."""
        loads: Counter[int] = Counter()
        for name, place in zip(self.space.names, places, strict=True):
            loads[place] += self.durations[name]
        return loads.values()

    def _rest(self) -> dict[str, int]:
        """Returns the longest chain of dependencies from each task to the iteration's end, ns."""
        rest = dict.fromkeys(self.space.names, 0)
        for name in reversed(self.space.names):
            rest[name] += self.durations[name]
            for dep in self.space.intra[name]:
                rest[dep] = max(rest[dep], rest[name])
        return rest

    def _turn(self) -> int:
        """Returns the longest chain from a task to one of the previous iteration that depends on it, both included, ns."""
        longest = 0
        for task in self.space.names:
            ends = {task: self.durations[task]}
            for name in self.space.names:
                known = [ends[dep] for dep in self.space.intra[name] if dep in ends]
                if known:
                    ends[name] = max(known) + self.durations[name]
            longest = max([longest, *(ends[dep] for dep in self.space.inter[task] if dep in ends)])
        return longest

    def least(self) -> float:
        """Returns a lower bound of the period over all assignments."""
        loads = self._loads(self.space.units)
        shares = [sum(loads) / self.space.max_streams, *loads, self.turn]
        if self.simulation["retire"] == "finished":
            shares.append(max(self.rest.values()) / self.space.max_depth)
        return max(shares)
