"""Submission orders, SWP-18 and SWP-26 to SWP-32, traps T2, T3 and T5."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule import CheckedPlan, TaskSchedule, validate_plan
from pipelines.schedule.engine.order import (
    enqueue_order,
    period_edges,
    ready_first,
    serial_order,
    stage_descending,
    stall_costs,
)
from tests.effort import examples
from tests.schedule.plans import fused_sparse_dist, plan_of, sparse_dist


def test_swp_26_only_dependencies_of_the_same_period_count() -> None:
    plan = validate_plan(
        plan_of({"a": 0, "b": 1, "c": 1}, [("b", "a"), ("c", "b")], [("a", "b"), ("b", "a"), ("c", "c")])
    )
    assert period_edges(plan) == {"a": ["b"], "b": [], "c": ["b"]}


def test_swp_27_stall_cost_counts_waits_for_other_streams_within_the_period() -> None:
    stages, streams = {"a": 0, "b": 0, "c": 0, "d": 1}, {"a": "x", "b": "y", "c": "x"}
    plan = validate_plan(plan_of(stages, [("c", "a"), ("c", "b"), ("d", "c")], [("a", "d")], stream=streams))
    assert stall_costs(plan) == {"a": 1, "b": 0, "c": 1, "d": 0}


def test_swp_29_and_trap_t2_sparse_dist_follows_the_pseudocode_not_the_printed_order() -> None:
    plan = validate_plan(sparse_dist())
    assert period_edges(plan) == {
        "H2D": [],
        "InputDistStart": [],
        "InputDistWait": ["InputDistStart"],
        "ZeroGrad": [],
        "WaitBatch": ["ZeroGrad"],
        "Forward": ["WaitBatch"],
        "Backward": ["Forward"],
        "OptimizerStep": ["Backward"],
    }
    assert set(stall_costs(plan).values()) == {0}
    assert " ".join(ready_first(plan)) == (
        "H2D InputDistStart InputDistWait ZeroGrad WaitBatch Forward Backward OptimizerStep"
    )


def test_swp_30_stage_descending_order_of_sparse_dist() -> None:
    assert " ".join(stage_descending(validate_plan(sparse_dist()))) == (
        "ZeroGrad WaitBatch Forward Backward OptimizerStep InputDistStart InputDistWait H2D"
    )


def test_swp_69_and_trap_t3_fused_sparse_dist_in_both_orders() -> None:
    plan = validate_plan(fused_sparse_dist())
    assert stall_costs(plan)["Forward"] == 1
    assert " ".join(enqueue_order(plan, "ready_first")) == (
        "EmbLookup H2D InputDistStart InputDistWait ZeroGrad WaitBatch Forward Backward OptimizerStep"
    )
    assert " ".join(enqueue_order(plan, "stage_descending")) == (
        "EmbLookup ZeroGrad WaitBatch Forward Backward OptimizerStep InputDistStart InputDistWait H2D"
    )


def pqra(*, legal: bool) -> CheckedPlan:
    """Return the P/Q/R/A plan. The document's version passes no validator (trap T4)."""
    streams = {"P": "X", "Q": "Y", "R": "X", "A": "Z"}
    return CheckedPlan(
        schedule={n: TaskSchedule(stage=int(n == "Q"), stream=s) for n, s in streams.items()},
        tasks={},
        intra={"P": (), "Q": ("P",), "R": () if legal else ("Q",), "A": ()},
        inter={"P": (), "Q": (), "R": ("Q",) if legal else (), "A": ("Q",)},
        depth=2,
    )


def test_swp_31_order_of_p_q_r_a() -> None:
    assert stall_costs(pqra(legal=False)) == {"P": 0, "Q": 0, "R": 0, "A": 1}
    assert ready_first(pqra(legal=False)) == ["P", "Q", "R", "A"]
    assert stage_descending(pqra(legal=False)) == ["Q", "P", "R", "A"]


def test_swp_32_and_trap_t5_the_stall_is_seen_only_where_the_edge_is_in_the_period() -> None:
    """As printed, R's wait for Q is not in the period's graph and costs nothing. P comes first only by its name."""
    assert stall_costs(pqra(legal=False))["R"] == 0
    assert stall_costs(pqra(legal=True)) == {"P": 0, "Q": 0, "R": 1, "A": 1}
    assert ready_first(pqra(legal=True)) == ["P", "Q", "A", "R"]


def test_swp_28_the_ready_list_is_sorted_again_after_every_release() -> None:
    """The last of the first tasks releases b, and b still overtakes it."""
    plan = validate_plan(plan_of({"a": 0, "y": 0, "b": 0}, [("b", "a")]))
    assert ready_first(plan) == ["a", "b", "y"]


def test_serial_order_breaks_ties_by_name() -> None:
    assert serial_order(validate_plan(plan_of({"z": 0, "b": 0, "a": 2}, [("a", "z")]))) == ["b", "z", "a"]


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match="'ready_first', 'stage_descending'"):
        enqueue_order(validate_plan(sparse_dist()), "fifo")


def printed_pseudocode(plan: CheckedPlan) -> list[str]:
    """Return the order by the document's pseudocode, line by line."""
    adj: dict[str, list[str]] = {n: [] for n in plan.schedule}
    in_degree = dict.fromkeys(plan.schedule, 0)
    stall_cost = dict.fromkeys(plan.schedule, 0)
    for deps_of, later in ((plan.intra, 0), (plan.inter, 1)):
        for task, deps in deps_of.items():
            for dep in deps:
                if plan.stage(dep) == plan.stage(task) + later:
                    adj[dep].append(task)
                    in_degree[task] += 1
                    stall_cost[task] += plan.stream(dep) != plan.stream(task)
    ready = sorted([n for n, d in in_degree.items() if d == 0], key=lambda n: (stall_cost[n], n))
    order = []
    while ready:
        name = ready.pop(0)
        order.append(name)
        for succ in adj[name]:
            in_degree[succ] -= 1
            if in_degree[succ] == 0:
                ready.append(succ)
        ready.sort(key=lambda n: (stall_cost[n], n))
    return order


@settings(max_examples=examples(100))
@given(data=st.data(), n=st.integers(1, 8))
def test_swp_28_random_plans_agree_with_the_printed_pseudocode(data: st.DataObject, n: int) -> None:
    from tests.schedule.random_plans import draw_plan

    plan = validate_plan(draw_plan(data, n).plan)
    assert ready_first(plan) == printed_pseudocode(plan)


@settings(max_examples=examples(100))
@given(data=st.data(), n=st.integers(1, 8))
def test_swp_33_every_order_is_topological_within_the_period(data: st.DataObject, n: int) -> None:
    """SWP-18: in stage-descending order, stages decrease."""
    from tests.schedule.random_plans import draw_plan

    plan = validate_plan(draw_plan(data, n).plan)
    for order in (ready_first(plan), stage_descending(plan)):
        assert sorted(order) == sorted(plan.schedule)
        place = {name: i for i, name in enumerate(order)}
        assert all(place[d] < place[t] for t, deps in period_edges(plan).items() for d in deps)
    stages = [plan.stage(name) for name in stage_descending(plan)]
    assert stages == sorted(stages, reverse=True)
