"""The simulated engines obey every rule for any legal plan, and hang exactly where the document predicts it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan, PlanError, TaskSchedule, validate_plan
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.simulation.simulated import DeadlockError, Jitter, Spikes, simulate
from tests.effort import examples
from tests.schedule.simulation_help import FUSED_NS, chain, check_limit, check_timeline, fused_sparse_dist, legal_plans

PROPERTY = settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def durations_of(plan: PipelinePlan) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({str(name): st.integers(0, 6) for name in plan.schedule})


@PROPERTY
@given(st.data(), st.integers(0, 3), st.sampled_from(["ready_first", "stage_descending"]), st.booleans())
def test_clocked_completes_every_legal_plan(data: st.DataObject, submit_ns: int, order: str, finished: bool) -> None:
    """SWP-9, SWP-10, SWP-33, SWP-67: no legal plan hangs, and every declared order is kept."""
    plan = data.draw(legal_plans())
    durations = data.draw(durations_of(plan))
    retire = "finished" if finished else "submitted"
    timeline = simulate(plan, durations, iterations=7, order=order, submit_ns=submit_ns, retire=retire)
    checked = validate_plan(plan)
    check_timeline(checked, timeline, durations, 7)
    if finished:
        check_limit(timeline, checked.depth)


@PROPERTY
@given(st.data(), st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_data_flow_completes_every_legal_plan(
    data: st.DataObject, max_depth: int, submit_ns: int, finished: bool
) -> None:
    """SWP-55, SWP-58, SWP-60, trap T10: bounded buffers do not hang, and at most max_depth iterations are in flight."""
    plan = data.draw(legal_plans())
    durations = data.draw(durations_of(plan))
    retire = "finished" if finished else "submitted"
    timeline = simulate(
        plan,
        durations,
        engine="DataFlowPipeline",
        max_depth=max_depth,
        iterations=7,
        submit_ns=submit_ns,
        retire=retire,
    )
    check_timeline(validate_plan(plan, clocked=False), timeline, durations, 7)
    if finished:
        check_limit(timeline, max_depth)


@PROPERTY
@given(st.data())
def test_ordered_tasks_come_in_one_order_whatever_the_timing(data: st.DataObject) -> None:
    """SWP-67: two ranks with different durations and host speeds submit the ordered tasks in the same order."""
    plan = data.draw(legal_plans())
    for engine in ("SWPipeline", "DataFlowPipeline"):
        ranks = []
        for submit_ns in (0, {name: data.draw(st.integers(0, 9)) for name in plan.schedule}):
            rank = simulate(plan, data.draw(durations_of(plan)), engine=engine, iterations=5, submit_ns=submit_ns)
            ordered = {str(name) for name, settings in plan.schedule.items() if settings.globally_ordered}
            ranks.append([(s.task, s.iteration) for s in rank.spans if s.task in ordered])
        assert ranks[0] == ranks[1]


@PROPERTY
@given(st.data())
def test_serial_is_one_stream_without_gaps(data: st.DataObject) -> None:
    """SWP-41: run_serial takes the sum of all durations."""
    plan = data.draw(legal_plans())
    durations = data.draw(durations_of(plan))
    timeline = simulate(plan, durations, engine="serial", iterations=5)
    check_timeline(validate_plan(plan), timeline, durations, 5)
    assert timeline.end_ns == 5 * sum(durations.values())
    assert timeline.streams == ["default"]


def test_periods_submit_as_in_the_table() -> None:
    """SWP-15, SWP-16: depth 3, period 2 works on iterations 2/1/0, period 3 on 3/2/1."""
    spans = simulate(chain(3), {"T0": 1, "T1": 1, "T2": 1}, iterations=6, order="stage_descending").spans
    submitted = [(s.task, s.iteration) for s in spans]
    assert submitted[:3] == [("T0", 0), ("T1", 0), ("T0", 1)]
    assert submitted[3:9] == [("T2", 0), ("T1", 1), ("T0", 2), ("T2", 1), ("T1", 2), ("T0", 3)]


def test_sequence_of_the_document() -> None:
    """SWP-53: depth 2, three batches, an I/O thread and a compute thread."""
    plan = PipelinePlan(
        {
            "CopyBatch": TaskSchedule(0, "copy", "io"),
            "Forward": TaskSchedule(1, None, "compute"),
            "Backward": TaskSchedule(1, None, "compute"),
        },
        [("Forward", "CopyBatch"), ("Backward", "Forward")],
    )
    timeline = simulate(plan, {"CopyBatch": 2, "Forward": 3, "Backward": 5}, iterations=3)
    assert [(s.start_ns, s.end_ns) for s in timeline.of("CopyBatch")] == [(0, 2), (2, 4), (10, 12)]
    assert [(s.start_ns, s.end_ns) for s in timeline.of("Forward")] == [(2, 5), (10, 13), (18, 21)]
    assert [(s.start_ns, s.end_ns) for s in timeline.of("Backward")] == [(5, 10), (13, 18), (21, 26)]
    assert timeline.retired_ns == (10, 18, 26)


def test_a_thread_waits_for_another_ones_submission() -> None:
    """SWP-14: WaitBatch's thread blocks until H2D is submitted. Then its stream waits for H2D's event."""
    plan = PipelinePlan(
        {"H2D": TaskSchedule(0, "memcpy", "memcpy"), "WaitBatch": TaskSchedule(0, None, "default")},
        [("WaitBatch", "H2D")],
    )
    timeline = simulate(plan, {"H2D": 10, "WaitBatch": 1}, iterations=1, submit_ns={"H2D": 4, "WaitBatch": 1})
    (wait,) = timeline.of("WaitBatch")
    assert (wait.submit_ns, wait.start_ns) == (5, 14)
    assert [str(s) for s in wait.stalls] == [
        "signal: H2D i0, 4 ns",
        "submit: WaitBatch i0, 1 ns",
        "event: H2D i0, 9 ns",
    ]
    assert str(wait.cause) == "event: H2D i0, 9 ns"


def test_two_events_share_a_stall_by_time() -> None:
    """SWP-9: the stream waits for both events.

    Without the later one, the stall would be only as long as the earlier.
    """
    plan = PipelinePlan(
        {"long": TaskSchedule(0, "x"), "short": TaskSchedule(0, "y"), "both": TaskSchedule(0)},
        [("both", "long"), ("both", "short")],
        pipeline_depth=1,
    )
    (both,) = simulate(plan, {"long": 10, "short": 4, "both": 1}, iterations=1).of("both")
    assert [str(stall) for stall in both.stalls] == ["event: short i0, 4 ns", "event: long i0, 6 ns"]


def test_back_pressure_is_named_as_the_cause() -> None:
    """SWP-58, SWP-71: H2D is idle because progress() has not released its slot."""
    timeline = simulate(chain(2), {"T0": 1, "T1": 9}, iterations=4, engine="DataFlowPipeline", max_depth=2)
    third = timeline.of("T0")[2]
    assert (third.start_ns, str(third.cause)) == (10, "retire: i0, 8 ns")


SCENARIO_1 = PipelinePlan({"A": TaskSchedule(0), "B": TaskSchedule(1)}, [], [("A", "B")])
SCENARIO_2 = PipelinePlan(
    {
        "A": TaskSchedule(0, thread_group="T1"),
        "C": TaskSchedule(0, thread_group="T2"),
        "B": TaskSchedule(1, thread_group="T2"),
        "D": TaskSchedule(1, thread_group="T1"),
    },
    [],
    [("A", "B"), ("C", "D")],
)


@pytest.mark.parametrize("plan", [SCENARIO_1, SCENARIO_2], ids=["one thread", "two threads crossed"])
@pytest.mark.parametrize("order", ["ready_first", "stage_descending"])
def test_descending_orders_do_not_hang(plan: PipelinePlan, order: str) -> None:
    """SWP-18, SWP-20, SWP-21: no plan of these scenarios hangs in a descending order."""
    timeline = simulate(plan, dict.fromkeys(plan.schedule, 1), iterations=4, order=order)
    check_timeline(validate_plan(plan), timeline, dict.fromkeys(map(str, plan.schedule), 1), 4)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (SCENARIO_1, "thread default waits for B i0"),
        (SCENARIO_2, "thread T1 waits for B i0; thread T2 waits for D i0"),
    ],
    ids=["one thread", "two threads crossed"],
)
def test_ascending_order_hangs(plan: PipelinePlan, says: str) -> None:
    """SWP-20, SWP-21: the document's deadlocks, and which task waits for which."""
    with pytest.raises(DeadlockError, match=says):
        simulate(plan, dict.fromkeys(plan.schedule, 1), iterations=4, order=list(map(str, plan.schedule)))


@pytest.mark.parametrize("order", [["opt", "bwd", "fwd"], ["fwd", "bwd", "opt"]])
def test_two_stages_back_hangs_in_any_order(order: list[str]) -> None:
    """SWP-22: k = 2 is refused. Without the check, it hangs."""
    plan = PipelinePlan(
        {"fwd": TaskSchedule(0), "bwd": TaskSchedule(1), "opt": TaskSchedule(2)}, [("bwd", "fwd"), ("opt", "bwd")], []
    )
    checked = validate_plan(plan)
    forbidden = CheckedPlan(checked.schedule, {}, checked.intra, checked.inter | {"fwd": ("opt",)}, 3)
    with pytest.raises(DeadlockError, match="opt i0"):
        simulate(forbidden, {"fwd": 1, "bwd": 1, "opt": 1}, iterations=5, order=order)
    with pytest.raises(PlanError, match="corollary 3"):
        simulate(PipelinePlan(plan.schedule, plan.intra_iter_deps, [("fwd", "opt")]), {"fwd": 1, "bwd": 1, "opt": 1})


def test_order_within_a_stream_decides_a_stall() -> None:
    """SWP-32, trap T4 (the legal variant: R waits for the previous Q): if R is before P, P is stuck behind R's wait."""
    plan = PipelinePlan(
        {"P": TaskSchedule(0, "X"), "Q": TaskSchedule(1, "Y"), "R": TaskSchedule(0, "X")}, [("Q", "P")], [("R", "Q")]
    )
    durations = {"P": 4, "Q": 10, "R": 2}
    good = simulate(plan, durations, iterations=6, order="ready_first")
    bad = simulate(plan, durations, iterations=6, order=["Q", "R", "P"])
    assert [s.task for s in good.spans if s.iteration == 2][:2] == ["P", "R"]
    assert good.of("P")[1].start_ns < bad.of("P")[1].start_ns
    assert bad.of("R")[1].cause is not None and bad.of("R")[1].cause.kind == "event"
    assert good.end_ns < bad.end_ns


def test_same_seed_same_timeline() -> None:
    """A distribution is drawn by task and iteration. It is the same in both engines, and differs with another seed."""
    declared = {**FUSED_NS, "H2D": Spikes(1_000_000, 5_000_000, 0.1), "Forward": Jitter(3_000_000, 400_000)}
    first = simulate(fused_sparse_dist(), declared, iterations=50, seed=3)
    assert first == simulate(fused_sparse_dist(), declared, iterations=50, seed=3)
    assert first != simulate(fused_sparse_dist(), declared, iterations=50, seed=4)
    other = simulate(fused_sparse_dist(), declared, iterations=50, seed=3, engine="DataFlowPipeline", max_depth=5)
    for task in ("H2D", "Forward"):
        assert [s.duration_ns for s in first.of(task)] == [s.duration_ns for s in other.of(task)]
    assert {s.duration_ns for s in first.of("H2D")} == {1_000_000, 5_000_000}


@pytest.mark.parametrize("iterations", [0, 1, 2])
@pytest.mark.parametrize("engine", ["SWPipeline", "DataFlowPipeline", "serial"])
def test_fewer_iterations_than_stages(engine: str, iterations: int) -> None:
    """SWP-38, SWP-39: the data may end while the pipeline fills."""
    plan = fused_sparse_dist()
    timeline = simulate(plan, FUSED_NS, engine=engine, iterations=iterations)
    check_timeline(validate_plan(plan), timeline, FUSED_NS, iterations)
    assert len(timeline.retired_ns) == iterations


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "swp"}, "use one of 'SWPipeline'"),
        ({"retire": "never"}, "use one of 'finished'"),
        ({"order": "alphabetical"}, "ready_first"),
        ({"order": ["T0"]}, "every task of the plan once"),
        ({"engine": "DataFlowPipeline", "max_depth": 0}, "at least one iteration"),
        ({"iterations": -1}, "0 or more"),
        ({"submit_ns": {"T2": 5}}, "submit_ns: no task is named 'T2'; the tasks are T0, T1"),
    ],
)
def test_wrong_options(options: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        simulate(chain(2), {"T0": 1, "T1": 1}, **options)


def test_wrong_durations() -> None:
    with pytest.raises(ValueError, match="no duration declared for T1"):
        simulate(chain(2), {"T0": 1})
    with pytest.raises(ValueError, match="negative duration of T0"):
        simulate(chain(2), {"T0": -1, "T1": 1})
