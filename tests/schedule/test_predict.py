"""Period, bubbles and efficiency of plans with known answers."""

from __future__ import annotations

import warnings
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan, PlanWarning, TaskSchedule, search
from pipelines.schedule.search.memory_in_flight import peak_in_flight
from pipelines.schedule.search.predict import predict, prediction_of, steady
from pipelines.schedule.simulation.simulated import Jitter, Span, Spikes, Timeline, simulate
from tests.effort import examples
from tests.schedule.simulation_help import FUSED_NS, chain, fused_sparse_dist, legal_plans

LOAD_COMPUTE_SAVE = PipelinePlan(
    {"load": TaskSchedule(0, "in"), "compute": TaskSchedule(1, "gpu"), "save": TaskSchedule(2, "out")},
    [("compute", "load"), ("save", "compute")],
)


@pytest.mark.parametrize(
    ("load", "compute", "save", "bottleneck"), [(9, 4, 2, "in"), (3, 8, 7, "gpu"), (3, 5, 11, "out")]
)
def test_ideal_is_the_slowest_stage(load: int, compute: int, save: int, bottleneck: str) -> None:
    """PRB-20: T_ideal = max(T_load, T_comp, T_save). PRB-21 names the slowest stage."""
    prediction = predict(LOAD_COMPUTE_SAVE, {"load": load, "compute": compute, "save": save})
    assert (prediction.ideal_ns, prediction.bottleneck) == (max(load, compute, save), bottleneck)
    assert prediction.period_ns == prediction.ideal_ns
    assert prediction.efficiency == 1
    assert prediction.fill_ns == load + compute + save


def test_efficiency_of_a_serial_run() -> None:
    """PRB-21: the same plan reaches T_ideal / T_actual = 8 / 18 if it runs serially."""
    prediction = predict(LOAD_COMPUTE_SAVE, {"load": 3, "compute": 8, "save": 7}, engine="serial")
    assert (prediction.period_ns, prediction.ideal_ns, prediction.efficiency) == (18, 8, pytest.approx(8 / 18))


def test_efficiency_with_bubbles() -> None:
    """PRB-21: clocked FusedSparseDist takes 10.7 ms for 10 ms of work. The default stream waits for EmbLookup."""
    prediction = predict(fused_sparse_dist(), FUSED_NS)
    assert prediction.efficiency == pytest.approx(10 / 10.7)
    assert prediction.bottleneck == "default"
    assert prediction.bubbles["default"] == {"event": 700_000}
    assert prediction.bubble_ns("default") == 700_000
    assert "efficiency 93.5%" in str(prediction)
    assert "default: busy 10000.000 us, idle event 700.000" in str(prediction)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(["SWPipeline", "DataFlowPipeline"]))
def test_no_plan_beats_its_ideal_and_streams_add_up(data: st.DataObject, engine: str) -> None:
    """PRB-20, PRB-21: efficiency is at most 1. A stream's busy and idle times add up to the period."""
    plan = data.draw(legal_plans())
    durations = {str(name): data.draw(st.integers(0, 9)) for name in plan.schedule}
    prediction = predict(plan, durations, engine=engine)
    assert 0 <= prediction.efficiency <= 1
    for stream, busy in prediction.busy_ns.items():
        assert busy + prediction.bubble_ns(stream) == pytest.approx(prediction.period_ns)


def test_period_of_several_iterations() -> None:
    """A run that repeats every 2 iterations has the mean of both as its period."""
    assert steady([0, 3, 10, 13, 20, 23, 30, 33, 40, 43, 50, 53]) == (7, 9)
    ends = [0, 3, 10, 13, 20, 23, 30, 33, 40, 43, 50, 53]
    spans = [Span("T", i, "s", 0, end - 1, end) for i, end in enumerate(ends)]
    assert prediction_of(Timeline("recorded", spans)).period_ns == 5


def test_distributions_give_the_mean() -> None:
    """PRB-20: with jitter, T_ideal is the busiest stream's mean."""
    prediction = predict(chain(2), {"T0": 10, "T1": Jitter(1000, 100)}, iterations=3000)
    assert prediction.ideal_ns == pytest.approx(1000, rel=0.01)
    assert prediction.period_ns == pytest.approx(1000, rel=0.01)


def test_nothing_takes_time() -> None:
    prediction = predict(chain(2), {"T0": 0, "T1": 0})
    assert (prediction.period_ns, prediction.efficiency) == (0, 1)


@pytest.mark.parametrize("iterations", [0, 7])
def test_too_few_iterations(iterations: int) -> None:
    with pytest.raises(ValueError, match="at least 8"):
        predict(chain(2), {"T0": 1, "T1": 1}, iterations=iterations)
    with pytest.raises(ValueError, match="at least 8"):
        prediction_of(simulate(chain(2), {"T0": 1, "T1": 1}, iterations=iterations))


def test_memory_by_task() -> None:
    """SWP-60: results exist from their task's start to the end of their iteration."""
    timeline = simulate(chain(2), {"T0": 4, "T1": 10}, iterations=20)
    assert peak_in_flight(timeline) == 2
    # While T1 of an iteration runs, T0 of the next has run or is running.
    assert peak_in_flight(timeline, {"T0": 100, "T1": 7}) == 207
    assert peak_in_flight(timeline, {"T1": 7}) == 7
    # If the host runs ahead, nothing bounds the device's memory (trap T10).
    ahead = simulate(chain(2), {"T0": 4, "T1": 10}, iterations=20, retire="submitted")
    assert peak_in_flight(ahead) > 10


def test_rare_spikes_are_no_steady_state() -> None:
    """Three equal steps between spikes look like a repeat. The period is the mean, including the spikes (PRB-21)."""
    plan = PipelinePlan({"A": TaskSchedule(stage=0, stream="a"), "B": TaskSchedule(stage=1, stream="b")}, [("B", "A")])
    spikes = Spikes(base_ns=1_000, spike_ns=21_000, probability=0.05)
    prediction = predict(plan, {"A": 500, "B": spikes}, iterations=2_000, seed=3)
    ends = simulate(plan, {"A": 500, "B": spikes}, iterations=2_000, seed=3).completions()
    assert prediction.period_ns == pytest.approx((ends[-1] - ends[0]) / (len(ends) - 1), rel=0.15)
    assert prediction.period_ns > 1_500


@pytest.mark.parametrize(("burst", "period"), [(6, 5_000), (7, 30_000 / 7), (12, 2_500), (24, 1_250)])
@pytest.mark.parametrize("iterations", [200, 48])
def test_a_burst_of_equal_steps_is_no_repeat(burst: int, period: float, iterations: int) -> None:
    """Iterations that end in bursts have equal steps within a burst, and one long step between bursts (PRB-21)."""
    steps = [1_000] * (burst - 1) + [30_000 - 1_000 * (burst - 1)]
    for start in range(burst):
        ends = list(accumulate([*steps[start:], *steps * iterations][: iterations - 1], initial=0))
        first, past = steady(ends)
        if iterations == 200 or burst <= 12:
            assert (ends[past] - ends[first]) / (past - first) == pytest.approx(period)
        else:  # a repeat longer than a third of the run cannot be detected
            assert (first, past) == (iterations // 4, iterations * 3 // 4)


def test_period_with_ten_streams_and_seven_iterations_in_flight() -> None:
    """Ten tasks of 10 us form a chain. An iteration takes 100 us, and seven are in flight."""
    plan = PipelinePlan({f"T{i}": TaskSchedule(0, f"S{i}") for i in range(10)}, chain(10).intra_iter_deps)
    durations = dict.fromkeys(map(str, plan.schedule), 10_000)
    prediction = predict(plan, durations, engine="DataFlowPipeline", max_depth=7)
    assert (prediction.period_ns, prediction.efficiency) == (pytest.approx(100_000 / 7), pytest.approx(0.7))


ONE_GROUP = {"load": 2, "compute": 2, "save": 4}
"""Host time of the submissions; the busiest stream takes 8."""


@pytest.mark.parametrize(
    ("submit_ns", "engine", "host"),
    [
        (ONE_GROUP, "SWPipeline", None),  # 8: as long as the stream
        (ONE_GROUP, "DataFlowPipeline", None),
        ({**ONE_GROUP, "load": 3}, "SWPipeline", (9, "host (default)")),
        ({**ONE_GROUP, "load": 3}, "DataFlowPipeline", (9, "host (default)")),
        (3, "serial", (9, "host (serial)")),
        (2, "serial", None),
    ],
)
def test_a_host_that_takes_longer_than_the_device_is_the_bottleneck(
    submit_ns: int | dict[str, int], engine: str, host: tuple[int, str] | None
) -> None:
    durations = {"load": 3, "compute": 8, "save": 7}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prediction = predict(LOAD_COMPUTE_SAVE, durations, submit_ns=submit_ns, engine=engine, retire="submitted")
    assert prediction.bottleneck == (host[1] if host else "gpu")
    assert f"ideal 0.008 us{f', {host[1]} 0.009 us' if host else ' (gpu)'}, efficiency" in str(prediction)
    assert prediction.ideal_ns == 8 and prediction.period_ns >= prediction.host_ns
    texts = [str(warning.message) for warning in caught if warning.category is PlanWarning]
    said = "the host needs 9e-06 ms per iteration to submit, and the device could do one in 8e-06 ms (gpu): "
    assert texts == ([f"{said}use larger batches or no pipeline"] if host else [])


@pytest.mark.parametrize(("group", "bottleneck"), [("default", "host (default)"), ("io", "gpu")])
def test_the_host_is_as_fast_as_its_busiest_thread(group: str, bottleneck: str) -> None:
    places = {"load": TaskSchedule(0, "in", group), "compute": TaskSchedule(1, "gpu")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanWarning)
        prediction = predict(PipelinePlan(places, [("compute", "load")]), {"load": 3, "compute": 8}, submit_ns=5)
    assert prediction.bottleneck == bottleneck


def test_a_search_names_the_host_but_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = search(["a", "b"], [("b", "a")], {"a": 3, "b": 8}, submit_ns=6)
    assert result.best.prediction.bottleneck == "host (default)"
