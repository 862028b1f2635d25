"""The longest cycle of dependencies, compared with all cycles and with the period of an engine without other limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule import CheckedPlan, PipelinePlan, TaskSchedule, validate_plan
from pipelines.schedule.search.cycles import longest_cycle
from pipelines.schedule.search.predict import predict
from tests.effort import examples
from tests.schedule.simulation_help import FUSED_NS, US, chain, fused_sparse_dist, legal_plans

MANY = settings(max_examples=examples(200), deadline=None)


def cycles(plan: CheckedPlan) -> Iterator[tuple[list[str], int]]:
    """Yield every cycle that visits no task twice, as its tasks and the number of iterations it spans."""
    followers: dict[str, list[tuple[str, int]]] = {name: [] for name in plan.names}
    for spanned, dependencies in enumerate((plan.intra, plan.inter)):
        for task, deps in dependencies.items():
            for dep in deps:
                followers[dep].append((task, spanned))
    places = {name: i for i, name in enumerate(plan.names)}

    def walks(path: list[str], spanned: int) -> Iterator[tuple[list[str], int]]:
        for task, more in followers[path[-1]]:
            if task == path[0]:
                yield path, spanned + more
            elif task not in path and places[task] > places[path[0]]:
                yield from walks([*path, task], spanned + more)

    for name in plan.names:
        yield from walks([name], 0)


def drawn_durations(data: st.DataObject, plan: CheckedPlan, least: int = 0) -> dict[str, int]:
    return {name: data.draw(st.integers(least, 9)) for name in plan.names}


@MANY
@given(st.data(), legal_plans())
def test_the_longest_of_all_cycles_is_returned(data: st.DataObject, plan: PipelinePlan) -> None:
    checked = validate_plan(plan)
    durations = drawn_durations(data, checked)
    lengths = [(Fraction(sum(durations[task] for task in tasks), spanned), tasks) for tasks, spanned in cycles(checked)]
    longest, tasks = longest_cycle(checked, durations)
    assert longest == max((length for length, _ in lengths), default=0)
    if longest:
        names = tasks.split(" -> ")
        assert any(length == longest and sorted(names) == sorted(cycle) for length, cycle in lengths)
        assert names[-1] in checked.inter[names[0]]
    else:
        assert tasks == ""


@pytest.mark.slow  # 9 s
@MANY
@given(st.data(), legal_plans())
def test_an_engine_that_nothing_else_limits_reaches_it(data: st.DataObject, plan: PipelinePlan) -> None:
    """Each task has its own stream, and any number of iterations may be in flight.

    So a task or a cycle determines the period.
    """
    schedule = {name: replace(s, stream=f"of {name}", thread_group="default") for name, s in plan.schedule.items()}
    checked = validate_plan(replace(plan, schedule=schedule))
    durations = drawn_durations(data, checked, least=1)
    ideal = max([longest_cycle(checked, durations)[0], *durations.values()])
    prediction = predict(
        checked,
        durations,
        engine="DataFlowPipeline",
        max_depth=300,
        order="dependencies",
        retire="submitted",
        iterations=400,
    )
    assert prediction.period_ns == float(ideal) == prediction.ideal_ns


def test_a_slow_lookup_makes_the_document_s_plan_wait_for_itself() -> None:
    """SWP-69: EmbLookup needs the previous Backward, so a period contains all three tasks, whatever the streams."""
    slow = {**FUSED_NS, "EmbLookup": 2000 * US}
    bound = slow["EmbLookup"] + slow["Forward"] + slow["Backward"]
    assert longest_cycle(validate_plan(fused_sparse_dist()), slow) == (bound, "EmbLookup -> Forward -> Backward")
    prediction = predict(fused_sparse_dist(), slow, retire="submitted")
    assert (prediction.ideal_ns, prediction.period_ns, prediction.efficiency) == (bound, bound, 1)
    assert prediction.bottleneck == "cycle EmbLookup -> Forward -> Backward"
    assert "ideal 11000.000 us (cycle EmbLookup -> Forward -> Backward)" in str(prediction)
    # With the usual lookup, the default stream's work takes longer than the cycle.
    assert predict(fused_sparse_dist(), FUSED_NS).bottleneck == "default"


def test_a_cycle_of_two_iterations_counts_by_half() -> None:
    """a needs the last b, and b needs the last a. This takes 9 ns in two iterations."""
    plan = PipelinePlan({"a": TaskSchedule(0, "x"), "b": TaskSchedule(0, "y")}, [], [("a", "b"), ("b", "a")])
    assert longest_cycle(validate_plan(plan), {"a": 1, "b": 8}) == (Fraction(9, 2), "a -> b")


@pytest.mark.parametrize("durations", [{"T0": 1, "T1": 2}, {"T0": 0, "T1": 0}])
def test_without_a_cycle_there_is_no_bound(durations: Mapping[str, int]) -> None:
    assert longest_cycle(validate_plan(chain(2)), durations) == (0, "")
