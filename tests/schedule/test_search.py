"""The search proposes every legal plan worth having and no other."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan, PlanError, TaskSchedule, validate_plan
from pipelines.schedule.assignments import Space, neighbours
from pipelines.schedule.memory import peak_in_flight
from pipelines.schedule.predict import predict
from pipelines.schedule.search import search
from pipelines.schedule.simulated import simulate

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
    """Every stage assignment without an empty stage that the validator takes."""
    found = set()
    for stages in product(range(depth), repeat=len(names)):
        schedule = {name: TaskSchedule(stage) for name, stage in zip(names, stages, strict=True)}
        try:
            validate_plan(PipelinePlan(schedule, intra, inter, None))  # type: ignore[arg-type]
        except PlanError:
            continue
        if set(stages) == set(range(max(stages) + 1)):
            found.add(stages)
    return found


@settings(max_examples=60, deadline=None)
@given(dependencies(), st.integers(1, 4))
def test_enumerates_what_the_validator_takes(problem: tuple[list[str], Deps, Deps], depth: int) -> None:
    """SWP-17, SWP-19: all legal stages, and only those, each once."""
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


@settings(max_examples=15, deadline=None)
@given(dependencies().filter(lambda problem: len(problem[0]) <= 3), st.data())
def test_the_best_is_the_best_of_all(problem: tuple[list[str], Deps, Deps], data: st.DataObject) -> None:
    """SWP-61: the first few equal a simulation of everything; the bound leaves nothing good out."""
    names, intra, inter = problem
    durations = {name: data.draw(st.integers(1, 9)) for name in names}
    limit = data.draw(st.sampled_from([None, 1, 2]))
    found = search(names, intra, durations, limit, inter_deps=inter, keep=3)
    everything = search(names, intra, durations, inter_deps=inter, keep=10_000)
    fitting = [c for c in everything.candidates if limit is None or c.peak_memory <= limit]
    assert found.exhaustive
    assert everything.simulated == len(everything.candidates) >= found.simulated
    assert [c.rank for c in found.candidates] == [c.rank for c in fitting[:3]]
    for candidate in found.candidates:
        validate_plan(candidate.plan)
        assert predict(candidate.plan, durations).period_ns == pytest.approx(candidate.prediction.period_ns)
        assert peak_in_flight(simulate(candidate.plan, durations, iterations=30)) == candidate.peak_memory


def test_finds_the_three_way_arrangement() -> None:
    """SWP-23: without an inter dependency the slowest task is the period; two stages are enough for it here."""
    found = search(list(STEP), DEPS, STEP)
    assert found.exhaustive
    assert found.best.prediction.period_ns == STEP["bwd"]
    assert found.best.peak_memory == 2
    assert [c.rank for c in found.candidates] == sorted(c.rank for c in found.candidates)


def test_finds_nothing_to_gain_under_an_inter_dependency() -> None:
    """SWP-24: everything is serial, so the smallest plan is the best, and arrangement D is never proposed."""
    found = search(list(STEP), DEPS, STEP, inter_deps=[("fwd", "opt")], keep=1000)
    assert {c.prediction.period_ns for c in found.candidates} == {sum(STEP.values())}
    assert set(stages_of(found.best.plan).values()) == {0}
    assert {tuple(stages_of(c.plan).values()) for c in found.candidates} == {(0, 0, 0), (0, 0, 1), (0, 1, 1)}


def test_memory_limit() -> None:
    """SWP-61: with room for one iteration only the serial arrangement is left; by bytes the copy decides."""
    one = search(list(STEP), DEPS, STEP, memory_limit=1)
    assert one.best.prediction.period_ns == sum(STEP.values())
    assert all(c.peak_memory <= 1 for c in one.candidates)
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
    """Issue 3: streams do not multiply a GPU; what shares it stays on one stream."""
    gpu = dict.fromkeys(STEP, "gpu")
    found = search(["h2d", *STEP], [("fwd", "h2d"), *DEPS], {"h2d": 500, **STEP}, resources=gpu, keep=1000)
    for candidate in found.candidates:
        streams = {str(name): settings.stream for name, settings in candidate.plan.schedule.items()}
        assert streams["fwd"] == streams["bwd"] == streams["opt"]
    assert found.best.prediction.period_ns == sum(STEP.values())
    assert len({s.stream for s in found.best.plan.schedule.values()}) == 2


def test_too_many_to_try_all() -> None:
    """SWP-69: nine tasks. A local search finds legal plans, says that it is one, and beats the serial run."""
    names = [f"t{i}" for i in range(9)]
    deps = list(zip(names[1:], names, strict=False))
    durations = {name: 100 * (i + 1) for i, name in enumerate(names)}
    found = search(names, deps, durations, memory_limit=3, max_streams=3)
    assert not found.exhaustive
    for candidate in found.candidates:
        validate_plan(candidate.plan)
        assert candidate.peak_memory <= 3
    assert found.best.prediction.period_ns < 0.5 * sum(durations.values())


def test_wrong_dependencies() -> None:
    """SWP-25: a cycle and an unknown name are refused before any search."""
    with pytest.raises(PlanError, match="cycle"):
        search(["a", "b"], [("a", "b"), ("b", "a")], {"a": 1, "b": 1})
    with pytest.raises(PlanError, match="not in `schedule`"):
        search(["a"], [("a", "z")], {"a": 1})
    with pytest.raises(ValueError, match="at least one of each"):
        search(["a"], [], {"a": 1}, max_streams=0)
