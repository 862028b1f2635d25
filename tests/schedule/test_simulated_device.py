"""The engines' own code on virtual streams, compared with the simulator: two independent ways to one timeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.schedule import IterContext, PipelineError, PipelinePlan, PipelineTask, TaskSchedule, validate_plan
from pipelines.schedule.simulation.simulated import Jitter, SimulatedDevice, Timeline, simulate
from tests.schedule.simulation_help import FUSED_NS, chain, check_timeline, fused_sparse_dist, legal_plans

pytest.importorskip("torch")  # the engines need torch, the simulator does not

from pipelines.schedule.engine.dataflow_pipeline import DataFlowPipeline
from pipelines.schedule.engine.sw_pipeline import SWPipeline
from pipelines.schedule.measurement.profiler import TaskProfiler
from tests.effort import examples

pytestmark = pytest.mark.filterwarnings("ignore::pipelines.schedule.PlanWarning")
FEW = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing(ctx: IterContext) -> None:
    """Do nothing, as a task that computes nothing."""


def runnable(plan: PipelinePlan, fn: Any = nothing) -> PipelinePlan:
    """Return the same plan with a function for every name."""
    return replace(plan, schedule={PipelineTask(str(name), fn): s for name, s in plan.schedule.items()})


def rows(timeline: Timeline) -> list[tuple]:
    return sorted((s.task, s.iteration, s.stream, s.submit_ns, s.start_ns, s.end_ns) for s in timeline.spans)


@FEW
@given(st.data(), st.integers(0, 3), st.sampled_from(["ready_first", "stage_descending"]))
def test_clocked_engine_and_simulator_agree(data: st.DataObject, submit_ns: int, order: str) -> None:
    """SWP-9, SWP-15, SWP-37: the engine's code yields the simulator's times, to the nanosecond."""
    plan = data.draw(legal_plans())
    for schedule in plan.schedule.values():
        schedule.thread_group = "default"  # on the device, each thread has its own time
    durations = {str(name): data.draw(st.integers(0, 9)) for name in plan.schedule}
    device = SimulatedDevice(durations, submit_ns=submit_ns)
    SWPipeline(runnable(plan), device, order=order).run(range(6))
    expected = simulate(plan, durations, iterations=6, submit_ns=submit_ns, order=order, retire="submitted")
    assert rows(device.timeline()) == rows(expected)


@FEW
@given(st.data(), st.integers(1, 4), st.booleans())
def test_data_flow_engine_keeps_every_rule(data: st.DataObject, max_depth: int, one_thread: bool) -> None:
    """SWP-33, SWP-55: whatever the threads do first, the timeline is legal. With one thread, nothing is idle."""
    plan = data.draw(legal_plans())
    for schedule in plan.schedule.values() if one_thread else ():
        schedule.thread_group = "default"
    durations = {str(name): data.draw(st.integers(0, 9)) for name in plan.schedule}
    device = SimulatedDevice(durations)
    DataFlowPipeline(runnable(plan), max_depth, device).run(range(6))
    checked, timeline = validate_plan(plan, clocked=False), device.timeline()
    if one_thread:
        check_timeline(checked, timeline, durations, 6)
    done = {(span.task, span.iteration): span.end_ns for span in timeline.spans}
    for span in timeline.spans:
        assert all(done[dep, span.iteration] <= span.start_ns for dep in checked.intra[span.task])
        if span.iteration:
            assert all(done[dep, span.iteration - 1] <= span.start_ns for dep in checked.inter[span.task])
    assert len(done) == 6 * len(plan.schedule)


def test_data_flow_engine_and_simulator_agree() -> None:
    """SWP-54, SWP-59: each task has its own stream, so threads cannot interfere. All times are equal despite jitter."""
    declared = {"T0": Jitter(500, 200), "T1": 900, "T2": Jitter(1000, 300)}
    device = SimulatedDevice(declared, seed=5)
    DataFlowPipeline(runnable(chain(3)), 3, device).run(range(40))
    expected = simulate(
        chain(3), declared, iterations=40, seed=5, engine="DataFlowPipeline", max_depth=3, retire="submitted"
    )
    assert rows(device.timeline()) == rows(expected)


def test_fused_sparse_dist_reaches_the_bottleneck() -> None:
    """SWP-59, SWP-69, SWP-70: 300 iterations of the engine's own code end within 1 % of the busiest stream's work."""
    device = SimulatedDevice(FUSED_NS)
    plan = runnable(fused_sparse_dist())
    seconds = SWPipeline(plan, device).run(range(300))
    assert seconds == pytest.approx(300 * 0.010, rel=0.01)
    check_timeline(validate_plan(plan), device.timeline(), FUSED_NS, 300)


def test_profiler_finds_what_the_arithmetic_says() -> None:
    """SWP-49, SWP-52: in a serial run, each task is exposed for exactly its duration."""
    pipe = SWPipeline(runnable(fused_sparse_dist()), SimulatedDevice(FUSED_NS))
    result = TaskProfiler(pipe).profile(None, num_warmup=1, num_measure=4, num_rounds=3)
    assert result.baseline_s == pytest.approx(sum(FUSED_NS.values()) / 1e9)
    assert result.exposed_s == pytest.approx({name: ns / 1e9 for name, ns in FUSED_NS.items()})


def test_by_name_and_without_durations() -> None:
    """Issue 3: device="simulated" works without further options. A task takes a microsecond."""
    seen: list[int] = []
    pipe = SWPipeline(runnable(chain(2), lambda ctx: seen.append(ctx.batch)), "simulated")
    assert pipe.run([7, 8, 9]) == pytest.approx(4e-6)
    assert sorted(seen) == [7, 7, 8, 8, 9, 9]
    assert pipe.device.timeline().of("T1")[2].end_ns == 4000  # type: ignore[attr-defined]


def test_stalls_name_the_event() -> None:
    """SWP-9: phase 2's wait is the cause of the stall in the engine's timeline, too."""
    device = SimulatedDevice({"T0": 40, "T1": 10})
    SWPipeline(runnable(chain(2)), device).run(range(2))
    assert [str(s.cause) for s in device.timeline().of("T1")] == ["event: T0 i0, 40 ns", "event: T0 i1, 30 ns"]


def test_a_thread_is_never_before_what_it_waited_for() -> None:
    """SWP-14: WaitBatch's thread continues when H2D was submitted, at 4 ns, and itself takes 4 ns."""
    schedule = {"H2D": TaskSchedule(0, "memcpy", "memcpy"), "WaitBatch": TaskSchedule(0, None, "default")}
    device = SimulatedDevice({"H2D": 1, "WaitBatch": 1}, submit_ns=4)
    SWPipeline(runnable(PipelinePlan(schedule, [("WaitBatch", "H2D")], pipeline_depth=1)), device).run(range(1))
    assert [(s.task, s.submit_ns, s.start_ns) for s in device.timeline().spans] == [("H2D", 4, 4), ("WaitBatch", 8, 8)]


def test_undeclared_task_is_named() -> None:
    """SWP-39: an error on the device reaches the caller."""
    with pytest.raises(PipelineError, match="no duration declared for T1"):
        SWPipeline(runnable(chain(2)), SimulatedDevice({"T0": 1})).run(range(2))


def test_stream_objects() -> None:
    """SWP-4: a stream is a name or an object of the device, nothing else."""
    device = SimulatedDevice({"A": 3, "B": 5})
    plan = PipelinePlan(
        {
            PipelineTask("A", nothing): TaskSchedule(stream=device.stream("mine")),
            PipelineTask("B", nothing): TaskSchedule(),
        },
        [("B", "A")],
        pipeline_depth=1,
    )
    SWPipeline(plan, device).run(range(1))
    assert device.timeline().streams == ["mine", "default"]
    with pytest.raises(TypeError, match="takes a name"):
        device.stream(3)
