"""The document's claims about the two engines, on virtual streams."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan, PlanError, TaskSchedule
from pipelines.schedule.search.predict import predict
from pipelines.schedule.simulation.simulated import Jitter, Spikes, simulate
from tests.effort import examples
from tests.schedule.simulation_help import FUSED_NS, US, chain, fused_sparse_dist

FWD, BWD, OPT = 3000 * US, 6000 * US, 900 * US
STEP = {"fwd": FWD, "bwd": BWD, "opt": OPT}
DEPS = [("bwd", "fwd"), ("opt", "bwd")]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1 * US, 1000 * US), min_size=1, max_size=5), st.integers(0, 2))
def test_both_engines_reach_the_bottleneck(stages: list[int], more: int) -> None:
    """SWP-59: with one stream per stage, the period is that of the slowest stage, within 1 % (here exactly)."""
    plan, durations = chain(len(stages)), {f"T{i}": ns for i, ns in enumerate(stages)}
    clocked = predict(plan, durations)
    flow = predict(plan, durations, engine="DataFlowPipeline", max_depth=len(stages) + more)
    assert clocked.period_ns == pytest.approx(max(stages), rel=0.01)
    assert flow.period_ns == pytest.approx(max(stages), rel=0.01)


def test_both_engines_reach_the_bottleneck_with_jitter() -> None:
    """SWP-59: over thousands of iterations, jitter of the bottleneck itself only shifts the mean."""
    declared = {"T0": 1000 * US, "T1": 2000 * US, "T2": Jitter(10_000 * US, 500 * US)}
    for options in ({}, {"engine": "DataFlowPipeline", "max_depth": 4}):
        prediction = predict(chain(3), declared, iterations=3000, **options)
        assert prediction.period_ns == pytest.approx(10_000 * US, rel=0.01)


def test_where_a_stage_has_two_streams() -> None:
    """The limit of SWP-59: the last stage of FusedSparseDist begins with EmbLookup, which runs on a separate stream.

    With a clock and a host that waits for the device, the next EmbLookup is submitted only after the last stage ends.
    So the stage, not its busiest stream, is the bottleneck. Data flow, or a host that runs ahead, hides it.
    """
    stream = sum(FUSED_NS[name] for name in ("ZeroGrad", "WaitBatch", "Forward", "Backward", "OptimizerStep"))
    plan = fused_sparse_dist()
    assert predict(plan, FUSED_NS).period_ns == stream + FUSED_NS["EmbLookup"] - FUSED_NS["ZeroGrad"]
    assert predict(plan, FUSED_NS, retire="submitted").period_ns == stream
    assert predict(plan, FUSED_NS, engine="DataFlowPipeline", max_depth=5).period_ns == stream


def arrangement(stages: tuple[int, int, int], inter: bool) -> PipelinePlan:
    """Return SWP-23: fwd, bwd and opt in these stages, with one stream per stage."""
    schedule = {name: TaskSchedule(stage, f"s{stage}") for name, stage in zip(STEP, stages, strict=True)}
    return PipelinePlan(schedule, DEPS, [("fwd", "opt")] if inter else [], None)  # type: ignore[arg-type]


ARRANGEMENTS = {"A": (0, 0, 0), "B": (0, 0, 1), "C": (0, 1, 1), "D": (0, 1, 2)}


@pytest.mark.parametrize(
    ("name", "period"), [("A", FWD + BWD + OPT), ("B", FWD + BWD), ("C", BWD + OPT), ("D", max(FWD, BWD, OPT))]
)
def test_arrangements_without_inter_dependency(name: str, period: int) -> None:
    """SWP-23: A is serial. B, C and D overlap their stages."""
    assert predict(arrangement(ARRANGEMENTS[name], inter=False), STEP).period_ns == period


def test_staleness_of_arrangement_d() -> None:
    """SWP-23: in D, fwd(i) runs at best with the weights of opt(i - 3). Two more updates are in flight."""
    timeline = simulate(arrangement(ARRANGEMENTS["D"], inter=False), STEP, iterations=30)
    start = timeline.of("fwd")[20].start_ns
    done = [span.iteration for span in timeline.of("opt") if span.end_ns <= start]
    assert 20 - 1 - max(done) == 2


@pytest.mark.parametrize("name", ["A", "B", "C"])
@pytest.mark.parametrize("engine", ["SWPipeline", "DataFlowPipeline"])
def test_arrangements_with_inter_dependency_gain_nothing(name: str, engine: str) -> None:
    """SWP-24: fwd(i) waits for opt(i - 1), so every arrangement is serial."""
    options = {"max_depth": 4} if engine == "DataFlowPipeline" else {}
    prediction = predict(arrangement(ARRANGEMENTS[name], inter=True), STEP, engine=engine, **options)
    assert prediction.period_ns == FWD + BWD + OPT


def test_arrangement_d_with_inter_dependency_is_refused() -> None:
    """SWP-24: the dependency spans k = 2 stages, which corollary 3 forbids."""
    with pytest.raises(PlanError, match="corollary 3"):
        predict(arrangement(ARRANGEMENTS["D"], inter=True), STEP)


def test_fill_burst() -> None:
    """SWP-57, SWP-58, SWP-70: data flow sends H2D five times immediately. The clocked engine waits after three."""
    flow = simulate(fused_sparse_dist(), FUSED_NS, engine="DataFlowPipeline", max_depth=5, iterations=20)
    assert [s.start_ns for s in flow.of("H2D")[:5]] == [i * FUSED_NS["H2D"] for i in range(5)]
    assert flow.of("H2D")[5].start_ns == flow.retired_ns[0] > 5 * FUSED_NS["H2D"]
    clocked = simulate(fused_sparse_dist(), FUSED_NS, iterations=20)
    assert [s.start_ns for s in clocked.of("H2D")[:3]] == [i * FUSED_NS["H2D"] for i in range(3)]
    assert [s.start_ns for s in clocked.of("H2D")[3:]] == list(clocked.retired_ns[:17])


def test_h2d_is_idle_most_of_a_period() -> None:
    """SWP-71: in every period, H2D works 1 ms and waits 9 ms for the clock."""
    durations = {"T0": 1000 * US, "T1": 1000 * US, "T2": 10_000 * US}
    prediction = predict(chain(3), durations)
    assert prediction.busy_ns["S0"] == 1000 * US
    assert prediction.bubbles["S0"] == {"retire": 9000 * US}


@pytest.mark.slow  # 3 s
def test_jitter_is_absorbed_as_max_depth_grows() -> None:
    """SWP-59, SWP-60: the more iterations are in flight, the less late copies cost, down to nothing.

    Every run has the same draws. A late copy (12 times its usual time, 1 of 20) is rare enough for the buffer to
    refill.
    """
    declared = {"T0": Spikes(2000 * US, 24_000 * US, 0.05), "T1": 10_000 * US}
    ends = []
    for max_depth in range(1, 9):
        flow = simulate(chain(2), declared, engine="DataFlowPipeline", max_depth=max_depth, iterations=2000, seed=1)
        ends.append(flow.end_ns)
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > 1.25 * 2000 * 10_000 * US
    assert ends[1] > 1.05 * 2000 * 10_000 * US
    assert ends[-1] < 1.01 * 2000 * 10_000 * US
    clocked = simulate(chain(2), declared, iterations=2000, seed=1)
    assert clocked.end_ns == ends[1]  # the clock's only buffer is its depth, so it equals data flow with max_depth = 2


def test_depth_one_is_serial_iterations() -> None:
    """SWP-60, trap T8: with max_depth = 1, iterations run one after the other, not as a clocked pipeline of depth 3."""
    timeline = simulate(fused_sparse_dist(), FUSED_NS, engine="DataFlowPipeline", max_depth=1, iterations=12)
    for iteration, retired in enumerate(timeline.retired_ns[:-1]):
        assert min(s.start_ns for s in timeline.spans if s.iteration == iteration + 1) == retired
    assert (
        predict(fused_sparse_dist(), FUSED_NS).period_ns
        < predict(fused_sparse_dist(), FUSED_NS, engine="DataFlowPipeline", max_depth=1).period_ns
    )


def test_memory_in_flight_is_the_depth() -> None:
    """SWP-60, SWP-61: with the clock, `depth` iterations are in flight, whatever the jitter.

    Data flow uses its maximum.
    """
    from pipelines.schedule.search.memory_in_flight import peak_in_flight

    declared = {**FUSED_NS, "H2D": Spikes(1000 * US, 30_000 * US, 0.2)}
    assert peak_in_flight(simulate(fused_sparse_dist(), declared)) == 3
    for max_depth in (1, 2, 5):
        flow = simulate(fused_sparse_dist(), declared, engine="DataFlowPipeline", max_depth=max_depth)
        assert peak_in_flight(flow) == max_depth
