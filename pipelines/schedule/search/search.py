"""Search for the best stages and streams: legal assignments, ranked by simulation.

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
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import PipelinePlan, TaskRef, TaskSchedule, by_known_name, by_name, name_of
from pipelines.schedule.plan.validate import validate_plan
from pipelines.schedule.search.assignments import Assignment, Space, neighbours
from pipelines.schedule.search.cycles import longest_cycle
from pipelines.schedule.search.memory_in_flight import peak_in_flight
from pipelines.schedule.search.predict import Prediction, prediction_of
from pipelines.schedule.search.starts import starts
from pipelines.schedule.simulation.durations import drawn
from pipelines.schedule.simulation.simulated import simulate, submission_times

_ITERATIONS = 48
_ENUMERATED = 20_000
_SIMULATED = 600
_PATIENCE = 25
_POLISHED = 100
"""Number of further plans to simulate for less memory and fewer streams once the period cannot get shorter."""


@dataclass(frozen=True)
class Candidate:
    """A legal plan and its prediction."""

    plan: PipelinePlan
    prediction: Prediction
    peak_memory: float
    """Result of `peak_in_flight`: iterations in flight, or in the units of `memory`."""

    @property
    def rank(self) -> tuple:
        """Return the sort key (smaller is better): period, memory, depth, streams, then stages and streams by name."""
        settings = {name_of(ref): (s.stage, s.stream) for ref, s in self.plan.schedule.items()}
        streams = {stream for _, stream in settings.values()}
        depth = max(stage for stage, _ in settings.values()) + 1
        return (self.prediction.period_ns, self.peak_memory, depth, len(streams), sorted(settings.items()))


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search."""

    candidates: list[Candidate]
    """The best candidates, best first. Empty if no plan fits into the memory."""
    exhaustive: bool
    """Whether every legal assignment was considered, so the first candidate is the best. False after local search."""
    simulated: int
    """Number of simulated plans. The others were excluded by a bound on their period, or not reached."""
    least_period_ns: float = 0.0
    """Lower bound of the period of all legal assignments, with any memory. If the first candidate reaches the bound,
    its period is optimal, whether or not the search was exhaustive.
    """

    @property
    def best(self) -> Candidate:
        """Return the best candidate. Raise ValueError if no plan fits into the memory."""
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
) -> SearchResult:
    """Return the `keep` best assignments of stages and streams for SWPipeline.

    `deps` and `inter_deps`: (task, depends_on), as in a plan. `durations`: fixed, ns. `memory_limit`: maximum in
    flight, in iterations, or in the units of `memory` (size of each task's result). On CUDA, the limit applies only if
    the loop waits for a result of each step. `resources`: the hardware of each task. Tasks of one resource stay on one
    stream. Without `resources`, streams are assumed to be independent hardware. Tasks that share a GPU's compute units
    then get separate streams, which save no time in reality. `order`, `submit_ns`, `retire`: as for `simulate`.

    If there are at most 20000 assignments, all are considered. If there are more, `exhaustive` is False, and a local
    search starts from greedy plans (starts.py), the most promising first, so its result is at least as good as these.
    Then it starts from points near the best. It considers only plans whose lower bound allows them to be better, and
    simulates at most 600. Raise PlanError if a dependency is wrong (a cycle, an unknown name), and ValueError if
    `keep`, `max_depth` or `max_streams` is below 1, if an option names an unknown task, or if a duration is a
    distribution.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: at least 1")
    names = list(tasks)
    base = PipelinePlan({ref: TaskSchedule() for ref in names}, list(deps), list(inter_deps), None)
    checked = validate_plan(base)
    duration_by_task = by_name(durations)
    if distributions := [name for name in checked.names if callable(duration_by_task.get(name))]:
        raise ValueError(
            f"the durations of {', '.join(distributions)} are distributions, of which a search would use one draw: pass numbers, "
            "for example the mean"
        )
    memory = None if memory is None else by_known_name("memory", memory, checked.names)
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
    return SearchResult(best, exhaustive, len(judge.seen), judge.least())


def _space(checked: CheckedPlan, resources: Mapping[Any, str] | None, max_depth: int, max_streams: int | None) -> Space:
    if max_depth < 1 or (max_streams is not None and max_streams < 1):
        raise ValueError(f"max_depth={max_depth}, max_streams={max_streams}: a plan has at least one of each")
    names = serial_order(checked)
    resource_by_task = by_known_name("resources", resources or {}, names)
    numbers: dict[tuple[str, str], int] = {}
    keys = [("resource", resource_by_task[name]) if name in resource_by_task else ("task", name) for name in names]
    units = [numbers.setdefault(key, len(numbers)) for key in keys]
    return Space(names, checked.intra, checked.inter, units, max_depth, max_streams or len(names))


class _Judge:
    """Simulator of assignments with a cache of results, and local search over assignments."""

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
        self.cycle_ns = float(longest_cycle(checked, self.durations)[0])
        self.seen: dict[Assignment, Candidate] = {}
        self.most = _SIMULATED

    def fits(self, candidate: Candidate) -> bool:
        return self.limit is None or candidate.peak_memory <= self.limit

    def fitting(self) -> list[Candidate]:
        return [candidate for candidate in self.seen.values() if self.fits(candidate)]

    def all_of(self, choices: Iterable[Assignment], keep: int) -> None:
        """Simulate by increasing lower bound, until the bound exceeds the longest of the `keep` best periods."""
        periods: list[float] = []
        for bound, choice in sorted(((self.bound(c), c) for c in choices), key=lambda pair: pair[0]):
            if len(periods) >= keep and bound > periods[keep - 1]:
                return
            candidate = self.candidate(choice)
            if self.fits(candidate):
                periods = sorted([*periods, candidate.prediction.period_ns])[:keep]

    def climb(self, starts: Iterable[Assignment]) -> None:
        """Simulate all starts that can be the best. Then climb from each, the best first, to better neighbors.

        Stop when a local optimum has the shortest possible period. Otherwise, continue from random points near the
        best.
        """
        tried, shortest = [], inf
        for bound, start in sorted(((self.bound(start), start) for start in starts), key=lambda pair: pair[0]):
            if bound > shortest:
                break
            candidate = self.candidate(start)
            tried.append(start)
            if self.fits(candidate):
                shortest = min(shortest, candidate.prediction.period_ns)
        for start in sorted(tried, key=self._key):
            if self._climb(start) and self.most < _SIMULATED:  # the shortest possible period was found
                return
        self._kick(random.Random(0))

    def _climb(self, choice: Assignment) -> bool:
        """Climb to a local optimum and return True. Return False if the limit on simulations was reached."""
        while len(self.seen) < self.most:
            better = self._step(choice)
            if better is None:
                return True
            choice = better
        return False

    def _kick(self, rng: random.Random) -> None:
        """Take a few random steps away from the best plan and climb again.

        Stop after _PATIENCE attempts in a row without a better plan.
        """
        n_failed = 0
        while n_failed < _PATIENCE and len(self.seen) < self.most:
            best = choice = min(self.seen, key=self._key)
            for _ in range(rng.randint(2, 4)):
                choice = rng.choice(list(neighbours(self.space, choice)) or [choice])
            self._climb(choice)
            n_failed = 0 if min(self.seen, key=self._key) != best else n_failed + 1

    def _key(self, choice: Assignment) -> tuple:
        """Return the sort key of an assignment (smaller is better). Ties may be broken arbitrarily."""
        candidate = self.candidate(choice)
        rank = candidate.rank[:4]
        return (False, *rank) if self.fits(candidate) else (True, candidate.peak_memory, *rank)

    def _step(self, choice: Assignment) -> Assignment | None:
        """Return the first better neighbor in order of lower bounds, or None without one or if the limit is reached."""
        key = self._key(choice)
        period = None if key[0] else self.candidate(choice).prediction.period_ns
        bounded = [(self.bound(neighbor), neighbor) for neighbor in neighbours(self.space, choice)]
        for bound, neighbor in sorted(bounded, key=lambda pair: pair[0]):
            if period is not None and bound > period:
                return None
            if neighbor not in self.seen and len(self.seen) >= self.most:
                return None
            if self._key(neighbor) < key:
                return neighbor
        return None

    def candidate(self, choice: Assignment) -> Candidate:
        if choice not in self.seen:
            plan = self._plan(choice)
            timeline = simulate(plan, self.durations, iterations=_ITERATIONS, **self.simulation)
            checked = validate_plan(plan)
            prediction = prediction_of(timeline, checked, submission_times(checked, self.simulation["submit_ns"]))
            self.seen[choice] = candidate = Candidate(plan, prediction, peak_in_flight(timeline, self.memory))
            if (
                self.fits(candidate) and prediction.period_ns <= self.least()
            ):  # the period is optimal, so a better plan can only use less memory or fewer streams
                self.most = min(self.most, len(self.seen) + _POLISHED)
        return self.seen[choice]

    def _plan(self, choice: Assignment) -> PipelinePlan:
        slots = dict(zip(self.space.names, zip(choice.stages, choice.streams, strict=True), strict=True))
        schedule: dict[TaskRef, TaskSchedule] = {}
        for ref in self.base.schedule:
            stage, stream = slots[name_of(ref)]
            schedule[ref] = TaskSchedule(stage=stage, stream=f"stream{stream}")
        return replace(self.base, schedule=schedule)

    def bound(self, choice: Assignment) -> float:
        """Return a lower bound of the period, ns.

        The bound is the maximum of the busiest stream, of the longest cycle of dependencies, and, for each stage, of
        the work that follows the wait for a free slot.

        A task of stage s of iteration i is submitted when iteration i + s - depth is retired. So a chain from the task
        to the iteration's end takes at most depth - s periods. This does not apply if progress() does not wait for the
        device.
        """
        bounds: list[float] = [self.cycle_ns, *self._loads(choice.streams)]
        if self.simulation["retire"] == "finished":
            stage = dict(zip(self.space.names, choice.stages, strict=True))
            depth = max(choice.stages) + 1
            bounds += [chain_ns / (depth - stage[name]) for name, chain_ns in self.rest.items()]
        return max(bounds)

    def _loads(self, keys: Sequence[int]) -> Collection[int]:
        """Return the work on each stream or unit, ns. `keys`: the stream or unit of each task."""
        loads: Counter[int] = Counter()
        for name, key in zip(self.space.names, keys, strict=True):
            loads[key] += self.durations[name]
        return loads.values()

    def _rest(self) -> dict[str, int]:
        """Return the longest chain of dependencies from each task to the iteration's end, ns."""
        chain_ns = dict.fromkeys(self.space.names, 0)
        for name in reversed(self.space.names):
            chain_ns[name] += self.durations[name]
            for dep in self.space.intra[name]:
                chain_ns[dep] = max(chain_ns[dep], chain_ns[name])
        return chain_ns

    def least(self) -> float:
        """Return a lower bound of the period of all assignments, ns."""
        loads = self._loads(self.space.units)
        shares = [sum(loads) / self.space.max_streams, *loads, self.cycle_ns]
        if self.simulation["retire"] == "finished":
            shares.append(max(self.rest.values()) / self.space.max_depth)
        return max(shares)
