"""From launches to a timeline with causes, and from CUDA events to nanoseconds. No torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelines.schedule import simulate
from pipelines.schedule.measurement.delays import Late, delays
from pipelines.schedule.measurement.recording import Launch, _read_marks, recorded_timeline
from pipelines.schedule.pictures.timeline import EVENT, HOST, RETIRE, SUBMIT
from pipelines.schedule.plan.plan_file import load_plan, plan_names
from pipelines.schedule.workloads import WORKLOADS

PLAN = load_plan("mlp").checked


def launch(task: str, iteration: int, stream: str, submit: int, start: int, end: int) -> Launch:
    return Launch(task, iteration, stream, submit, submit, start, end)


def test_every_cause_of_a_stall() -> None:
    launches = [
        launch("CopyBatch", 0, "copy", 5, 5, 10),
        launch("Forward", 0, "default", 6, 12, 20),
        launch("Backward", 0, "default", 25, 25, 30),
        launch("CopyBatch", 2, "copy", 50, 52, 60),
    ]
    timeline = recorded_timeline(launches, PLAN, "SWPipeline", retired_ns=(40,), in_flight=2)
    stalls = {
        (span.task, span.iteration): [(stall.kind, stall.task, stall.iteration, stall.ns) for stall in span.stalls]
        for span in timeline.spans
    }
    assert stalls == {
        ("CopyBatch", 0): [(HOST, "", None, 5)],
        # Forward's dependency was submitted late and ended late, so both its signal and its event delay Forward.
        ("Forward", 0): [("signal", "CopyBatch", 0, 5), (HOST, "", None, 1), (EVENT, "CopyBatch", 0, 4), (SUBMIT, "Forward", 0, 2)],
        ("Backward", 0): [(HOST, "", None, 5)],
        ("CopyBatch", 2): [(RETIRE, "", 0, 30), (HOST, "", None, 10), (SUBMIT, "CopyBatch", 2, 2)],
    }  # fmt: skip
    assert timeline.retired_ns == (40,)


def test_launches_may_come_in_any_order() -> None:
    """Two host threads may share a stream, so the order of submission can differ from the order of launch."""
    late, early = launch("Backward", 0, "default", 1, 30, 40), launch("OptimizerStep", 0, "default", 2, 10, 20)
    timeline = recorded_timeline([late, early], PLAN, "DataFlowPipeline")
    assert [(span.task, span.stall_ns) for span in timeline.spans] == [("Backward", 10), ("OptimizerStep", 10)]


def test_a_gpu_s_times_are_what_counts_where_there_are_any() -> None:
    slow = replace(launch("CopyBatch", 0, "copy", 5, 6, 7), device_start_ns=10, device_end_ns=90)
    (span,) = recorded_timeline([slow], PLAN, "SWPipeline").spans
    assert (span.submit_ns, span.start_ns, span.end_ns, span.stall_ns) == (5, 10, 90, 10)


@pytest.mark.parametrize("name", plan_names())
@pytest.mark.parametrize("engine", ["serial", "SWPipeline", "DataFlowPipeline"])
def test_causes_are_the_simulators(name: str, engine: str) -> None:
    """A simulated run is reduced to the facts that a recording has, and reconstructed from them."""
    file = load_plan(name)
    plan, depth = file.checked, file.checked.depth + (engine == "DataFlowPipeline")
    durations = {task: Late(ns, ns / 2) for task, ns in WORKLOADS[file.workload].nominal_ns.items()}
    simulated = simulate(
        plan, durations, iterations=40, engine=engine, max_depth=depth if engine == "DataFlowPipeline" else None
    )
    launches = [launch(s.task, s.iteration, s.stream, s.submit_ns, s.start_ns, s.end_ns) for s in simulated.spans]
    again = recorded_timeline(launches, plan, engine, simulated.retired_ns, depth)
    assert [span.stall_ns for span in again.spans] == [span.stall_ns for span in simulated.spans]
    kinds = [EVENT, RETIRE] if engine == "SWPipeline" else [EVENT]  # data flow: retirement acts indirectly
    for kind in kinds:
        mine, theirs = (
            [(span.task, span.iteration, str(stall)) for span in t.spans for stall in span.stalls if stall.kind == kind]
            for t in (again, simulated)
        )
        assert mine == theirs


class Mark:
    """A CUDA event at a time in ms. The distance between two is a 32-bit float, as in CUDA."""

    asked_ms = 0.0

    def __init__(self, at_ms: float) -> None:
        self.at_ms = at_ms

    def elapsed_time(self, later: Mark) -> float:
        import struct

        Mark.asked_ms = max(Mark.asked_ms, later.at_ms - self.at_ms)
        return struct.unpack("f", struct.pack("f", later.at_ms - self.at_ms))[0]


def test_event_times_stay_exact_over_a_long_run() -> None:
    zero, step_ms = Mark(7.25), 1.7
    launches = [launch("Forward", i, "default", i, i, i) for i in range(20_000)]
    for i, each in enumerate(launches):
        each.marks = (Mark(zero.at_ms + i * step_ms), Mark(zero.at_ms + i * step_ms + 0.9))
    _read_marks(zero, launches)
    last = launches[-1]
    assert last.marks is None and last.device_end_ns is not None and last.device_start_ns is not None
    assert (
        abs(last.device_start_ns - 19_999 * 1_700_000) < 1_000
    )  # after 34 s, at which a 32-bit float of milliseconds is off by 2 us
    assert last.device_end_ns - last.device_start_ns == 900_000
    assert Mark.asked_ms < 1100


def test_a_launch_that_never_ran_has_no_device_time() -> None:
    never = launch("Forward", 0, "default", 1, 1, 1)
    _read_marks(Mark(0.0), [never])
    assert never.device_start_ns is None and never.began_ns == 1


def test_delays_are_the_seeds_and_have_the_mean() -> None:
    drawn = delays("H2D", 500.0, 4000, seed=3)
    assert drawn == delays("H2D", 500.0, 4000, seed=3) != delays("H2D", 500.0, 4000, seed=4)
    assert sum(drawn) / len(drawn) == pytest.approx(500_000, rel=0.1)
    assert max(drawn) > 4 * 500_000
    assert delays("H2D", 0.0, 3, seed=0) == [0, 0, 0]
