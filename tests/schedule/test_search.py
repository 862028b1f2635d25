"""The search proposes every legal plan that is worthwhile, and no other."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan, PlanError, TaskSchedule, validate_plan
from pipelines.schedule.engine.order import serial_order
from pipelines.schedule.search.assignments import Assignment, Space, neighbours
from pipelines.schedule.search.memory_in_flight import peak_in_flight
from pipelines.schedule.search.predict import predict
from pipelines.schedule.search.search import search
from pipelines.schedule.search.starts import starts
from pipelines.schedule.simulation.simulated import Jitter, simulate
from tests.effort import examples

search_module = importlib.import_module("pipelines.schedule.search.search")

STEP = {"fwd": 3000, "bwd": 6000, "opt": 900}
DEPS = [("bwd", "fwd"), ("opt", "bwd")]
Deps = list[tuple[str, str]]


def stages_of(plan: PipelinePlan) -> dict[str, int]:
    return {str(name): settings.stage for name, settings in plan.schedule.items()}


@st.composite
def dependencies(draw: st.DrawFn) -> tuple[list[str], Deps, Deps]:
    names = [f"t{i}" for i in range(draw(st.integers(1, 4)))]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    intra = [pair for pair in pairs if draw(st.booleans())]
    inter = [pair for pair in product(names, names) if draw(st.integers(0, 3)) == 0]
    return names, intra, inter


def accepted(names: list[str], intra: Deps, inter: Deps, depth: int) -> set[tuple[int, ...]]:
    """Return every stage assignment without an empty stage that the validator accepts."""
    assignments = set()
    for stages in product(range(depth), repeat=len(names)):
        schedule = {name: TaskSchedule(stage) for name, stage in zip(names, stages, strict=True)}
        try:
            validate_plan(PipelinePlan(schedule, intra, inter, None))  # type: ignore[arg-type]
        except PlanError:
            continue
        if set(stages) == set(range(max(stages) + 1)):
            assignments.add(stages)
    return assignments


@settings(max_examples=examples(60), deadline=None)
@given(dependencies(), st.integers(1, 4))
def test_enumerates_what_the_validator_takes(problem: tuple[list[str], Deps, Deps], depth: int) -> None:
    """SWP-17, SWP-19: all legal assignments of stages, and only those, each once."""
    names, intra, inter = problem
    deps = validate_plan(PipelinePlan({name: TaskSchedule() for name in names}, intra, inter))  # type: ignore[arg-type]
    space = Space(names, deps.intra, deps.inter, list(range(len(names))), depth, 4)
    stages = list(space.stage_choices())
    assert len(stages) == len(set(stages))
    assert set(stages) == accepted(names, intra, inter, depth)
    choices = list(space.assignments())
    assert len(choices) == len(set(choices)) == len(stages) * {1: 1, 2: 2, 3: 5, 4: 15}[len(names)]
    for choice in choices[:20]:
        assert set(neighbours(space, choice)) <= set(choices)


@settings(max_examples=examples(15), deadline=None)
@given(dependencies().filter(lambda problem: len(problem[0]) <= 3), st.data())
def test_the_best_is_the_best_of_all(problem: tuple[list[str], Deps, Deps], data: st.DataObject) -> None:
    """SWP-61: the first few equal a simulation of all plans, so the bound excludes no good plan."""
    names, intra, inter = problem
    durations = {name: data.draw(st.integers(1, 9)) for name in names}
    limit = data.draw(st.sampled_from([None, 1, 2]))
    result = search(names, intra, durations, limit, inter_deps=inter, keep=3)
    everything = search(names, intra, durations, inter_deps=inter, keep=10_000)
    fitting = [c for c in everything.candidates if limit is None or c.peak_memory <= limit]
    assert result.exhaustive
    assert everything.simulated == len(everything.candidates) >= result.simulated
    assert [c.rank for c in result.candidates] == [c.rank for c in fitting[:3]]
    for candidate in result.candidates:
        validate_plan(candidate.plan)
        assert predict(candidate.plan, durations).period_ns == pytest.approx(candidate.prediction.period_ns)
        assert peak_in_flight(simulate(candidate.plan, durations, iterations=30)) == candidate.peak_memory


def test_finds_the_three_way_arrangement() -> None:
    """SWP-23: without an inter dependency, the slowest task is the period. Two stages suffice here."""
    result = search(list(STEP), DEPS, STEP)
    assert result.exhaustive
    assert result.best.prediction.period_ns == STEP["bwd"]
    assert result.best.peak_memory == 2
    assert [c.rank for c in result.candidates] == sorted(c.rank for c in result.candidates)


def test_finds_nothing_to_gain_under_an_inter_dependency() -> None:
    """SWP-24: everything is serial, so the smallest plan is the best, and arrangement D is never proposed."""
    result = search(list(STEP), DEPS, STEP, inter_deps=[("fwd", "opt")], keep=1000)
    assert {c.prediction.period_ns for c in result.candidates} == {sum(STEP.values())}
    assert set(stages_of(result.best.plan).values()) == {0}
    assert {tuple(stages_of(c.plan).values()) for c in result.candidates} == {(0, 0, 0), (0, 0, 1), (0, 1, 1)}


def test_memory_limit() -> None:
    """SWP-61: with room for one iteration, only the serial arrangement is left. With bytes, the copy decides."""
    single = search(list(STEP), DEPS, STEP, memory_limit=1)
    assert single.best.prediction.period_ns == sum(STEP.values())
    assert all(c.peak_memory <= 1 for c in single.candidates)
    memory = {"fwd": 10, "bwd": 5}
    tight = search(list(STEP), DEPS, STEP, memory_limit=24, memory=memory)
    roomy = search(list(STEP), DEPS, STEP, memory_limit=45, memory=memory)
    assert tight.best.peak_memory <= 24
    assert roomy.best.prediction.period_ns < tight.best.prediction.period_ns
    nothing = search(list(STEP), DEPS, STEP, memory_limit=0)
    assert nothing.candidates == []
    with pytest.raises(ValueError, match="raise it"):
        _ = nothing.best


def test_tasks_of_one_resource_stay_together() -> None:
    """Issue 3: streams do not multiply a GPU, so tasks that share it stay on one stream."""
    gpu = dict.fromkeys(STEP, "gpu")
    result = search(["h2d", *STEP], [("fwd", "h2d"), *DEPS], {"h2d": 500, **STEP}, resources=gpu, keep=1000)
    for candidate in result.candidates:
        streams = {str(name): settings.stream for name, settings in candidate.plan.schedule.items()}
        assert streams["fwd"] == streams["bwd"] == streams["opt"]
    assert result.best.prediction.period_ns == sum(STEP.values())
    assert len({s.stream for s in result.best.plan.schedule.values()}) == 2


@pytest.mark.slow  # another test compares the local with the exhaustive search
def test_too_many_to_try_all() -> None:
    """SWP-69: nine tasks. A local search finds legal plans, reports that it is local, and beats the serial run."""
    names = [f"t{i}" for i in range(9)]
    deps = list(zip(names[1:], names, strict=False))
    durations = {name: 100 * (i + 1) for i, name in enumerate(names)}
    result = search(names, deps, durations, memory_limit=3, max_streams=3)
    assert not result.exhaustive
    for candidate in result.candidates:
        validate_plan(candidate.plan)
        assert candidate.peak_memory <= 3
    assert result.best.prediction.period_ns < 0.5 * sum(durations.values())


def test_a_chain_of_seven_is_cut_as_well_as_can_be() -> None:
    """An earlier version found 14 ms, although four stages reach the longest task's 7 ms."""
    names = [f"t{i}" for i in range(7)]
    durations = {name: (i + 1) * 1_000_000 for i, name in enumerate(names)}
    result = search(names, list(zip(names[1:], names, strict=False)), durations)
    assert not result.exhaustive
    assert result.best.prediction.period_ns == result.least_period_ns == 7_000_000
    assert result.simulated <= 100 + 20  # at the optimum, only memory and streams can still be saved


def test_fifteen_tasks_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks can share streams in 1.4 billion ways, so the search must not enumerate them."""
    monkeypatch.setattr(search_module, "_POLISHED", 5)
    names = [f"t{i}" for i in range(15)]
    result = search(names, list(zip(names[1:], names, strict=False)), dict.fromkeys(names, 1000), max_depth=3)
    assert not result.exhaustive
    assert result.best.prediction.period_ns == result.least_period_ns == 5000


@dataclass(frozen=True)
class Problem:
    """A search problem drawn from a seed."""

    names: list[str]
    deps: Deps
    durations: dict[str, int]
    options: dict[str, Any]

    @classmethod
    def drawn(cls, seed: int, least: int, most: int) -> Problem:
        rng = random.Random(seed)
        names = [f"t{i}" for i in range(rng.randint(least, most))]
        deps = [(b, a) for i, b in enumerate(names) for a in names[:i] if rng.random() < 0.4]
        options: dict[str, Any] = {"max_depth": rng.randint(1, 4)}
        options["inter_deps"] = [(a, b) for a in names for b in names if rng.random() < 0.05]
        if rng.random() < 0.3:
            options["resources"] = {name: rng.choice("ab") for name in names if rng.random() < 0.7}
        if rng.random() < 0.3:
            options["max_streams"] = rng.randint(1, 3)
        if rng.random() < 0.2:
            options["memory_limit"] = rng.randint(1, 3)
        return cls(names, deps, {name: rng.randint(0, 9) for name in names}, options)

    def search(self, **options: Any) -> Any:
        return search(self.names, self.deps, self.durations, **self.options, **options)

    def period(self, candidates: list[Any]) -> float | None:
        return candidates[0].prediction.period_ns if candidates else None


def compare(seeds: Iterable[int], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the local search finds the optimum with a tenth of its allowed simulations."""
    for seed in seeds:
        problem = Problem.drawn(seed, 2, most)
        monkeypatch.setattr(search_module, "_ENUMERATED", 10**9)
        everything = problem.search(keep=1)
        monkeypatch.setattr(search_module, "_ENUMERATED", 0)
        monkeypatch.setattr(search_module, "_SIMULATED", 60)
        result = problem.search(keep=1)
        assert everything.exhaustive and not result.exhaustive
        assert problem.period(result.candidates) == problem.period(everything.candidates), seed
        if result.candidates:
            assert result.best.prediction.period_ns >= result.least_period_ns - 1e-6


@pytest.mark.slow
def test_no_fixed_durations_have_a_period_below_the_ideal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of this problem's short run includes its start, which is faster than any steady state."""
    monkeypatch.setattr(search_module, "_ENUMERATED", 10**9)
    problem = Problem.drawn(103, 2, 5)
    best = problem.search(keep=1).best.prediction
    assert best.period_ns >= best.ideal_ns


@pytest.mark.slow
def test_the_local_search_finds_what_an_exhaustive_one_does_in_75_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(range(75), 5, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_local_search_is_never_worse_than_greedy_balancing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy balancing fills stages to equal shares of the work, in serial order.

    It uses one stream per task, or one per stage.
    """
    monkeypatch.setattr(search_module, "_ENUMERATED", 0)
    problem = Problem.drawn(1000 + seed, 6, 9)
    options = {**problem.options, "memory_limit": None}
    options.pop("memory_limit"), options.pop("resources", None), options.pop("max_streams", None)
    result = search(problem.names, problem.deps, problem.durations, **options)
    base = PipelinePlan({name: TaskSchedule() for name in problem.names}, problem.deps, options["inter_deps"])  # type: ignore[arg-type]
    names, whole, periods = serial_order(validate_plan(base)), sum(problem.durations.values()), []
    for depth in range(1, options["max_depth"] + 1):
        done, stages = 0, {}
        for name in names:
            stages[name] = min(depth - 1, done * depth // max(1, whole))
            done += problem.durations[name]
        for streams in (stages, {name: i for i, name in enumerate(names)}):
            schedule = {name: TaskSchedule(stages[name], f"s{streams[name]}") for name in names}
            try:
                periods.append(predict(replace(base, schedule=schedule), problem.durations).period_ns)
            except PlanError:  # the greedy plan ignores dependencies on the previous iteration
                continue
    assert periods
    assert result.best.prediction.period_ns <= min(periods) + 1e-6


@settings(max_examples=examples(20), deadline=None)
@given(dependencies().filter(lambda problem: len(problem[0]) <= 3), st.data())
def test_no_period_is_below_its_bound(problem: tuple[list[str], Deps, Deps], data: st.DataObject) -> None:
    """The search relies on the bound to skip plans, and to report that a plan cannot be beaten."""
    names, intra, inter = problem
    durations = {name: data.draw(st.integers(0, 9)) for name in names}
    everything = search(names, intra, durations, inter_deps=inter, keep=10_000, max_depth=3)
    base = PipelinePlan({name: TaskSchedule() for name in names}, intra, inter)  # type: ignore[arg-type]
    checked = validate_plan(base)
    space = Space(serial_order(checked), checked.intra, checked.inter, list(range(len(names))), 3, len(names))
    judge = search_module._Judge(base, checked, space, durations, None, None, {"retire": "finished"})
    for candidate in everything.candidates:
        places = candidate.plan.schedule
        streams = [str(places[name].stream) for name in space.names]
        choice = Assignment(tuple(places[name].stage for name in space.names), tuple(map(streams.index, streams)))
        assert judge.least() - 1e-6 <= judge.bound(choice) <= candidate.prediction.period_ns + 1e-6


def test_greedy_starts_are_legal_and_each_once() -> None:
    for seed in range(60):
        problem = Problem.drawn(seed, 1, 8)
        base = PipelinePlan(
            {name: TaskSchedule() for name in problem.names}, problem.deps, problem.options["inter_deps"]
        )  # type: ignore[arg-type]
        checked = validate_plan(base)
        units = list(range(len(problem.names)))
        space = Space(serial_order(checked), checked.intra, checked.inter, units, problem.options["max_depth"], 3)
        rest = search_module._Judge(base, checked, space, problem.durations, None, None, {}).rest
        choices = starts(space, problem.durations, rest)
        assert len(choices) == len(set(choices)) > 0
        assert all(space.is_legal(start) for start in choices)
        assert (0,) * len(units) in {start.stages for start in choices}


def test_wrong_dependencies() -> None:
    """SWP-25: a cycle and an unknown name are refused before any search."""
    with pytest.raises(PlanError, match="cycle"):
        search(["a", "b"], [("a", "b"), ("b", "a")], {"a": 1, "b": 1})
    with pytest.raises(PlanError, match="not in `schedule`"):
        search(["a"], [("a", "z")], {"a": 1})
    with pytest.raises(ValueError, match="at least one of each"):
        search(["a"], [], {"a": 1}, max_streams=0)


@pytest.mark.parametrize("option", ["resources", "memory", "submit_ns"])
def test_an_option_that_names_no_task_is_refused(option: str) -> None:
    values: dict[str, Any] = {"fwd": "gpu"} if option == "resources" else {"fwd": 5}
    search(list(STEP), DEPS, STEP, **{option: values})
    with pytest.raises(ValueError, match=rf"{option}: no task is named 'Fwd'; did you mean 'fwd'\?"):
        search(list(STEP), DEPS, STEP, **{option: {**values, "Fwd": values["fwd"]}})
    with pytest.raises(ValueError, match=rf"{option}: no task is named 'save'; the tasks are fwd, bwd, opt"):
        search(list(STEP), DEPS, STEP, **{option: {"save": values["fwd"]}})


def test_a_distribution_is_refused() -> None:
    """One draw of it would count as the duration in every iteration."""
    with pytest.raises(ValueError, match=r"the durations of bwd are distributions.*for example the mean"):
        search(list(STEP), DEPS, {**STEP, "bwd": Jitter(6000, 100)})  # type: ignore[dict-item]
