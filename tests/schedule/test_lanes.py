"""Data flow keeps the order that the stages define on each stream, without hanging (SWP-54, SWP-60, SWP-70)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan, PlanWarning, SimulatedDevice, simulate, validate_plan
from pipelines.schedule.engine.lanes import lane_order
from tests.effort import examples
from tests.schedule.plans import Diary, plan_of
from tests.schedule.random_plans import draw_plan
from tests.schedule.simulation_help import legal_plans

PROPERTY = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
MIXED = {"X": 0, "C": 1, "Y": 2}  # X and Y share a stream, and C between them has another


def mixed(diary: Diary | None = None) -> PipelinePlan:
    return plan_of(MIXED, [("C", "X"), ("Y", "C")], diary=diary, stream={"C": "net"})


def by_stream(plan: PipelinePlan, done: Iterable[tuple[str, int]]) -> dict[Any, list[tuple[str, int]]]:
    streams: dict[Any, list[tuple[str, int]]] = {}
    checked = validate_plan(plan, clocked=False)
    for task, iteration in done:
        streams.setdefault(checked.stream(task), []).append((task, iteration))
    return streams


def simulated(plan: PipelinePlan, **options: Any) -> dict[Any, list[tuple[str, int]]]:
    names = [getattr(ref, "name", ref) for ref in plan.schedule]
    spans = simulate(plan, dict.fromkeys(names, 3), iterations=7, **options).spans
    return by_stream(plan, [(span.task, span.iteration) for span in spans])


def one_thread(plan: PipelinePlan) -> PipelinePlan:
    """Return the plan with one thread group. Its thread submits in the clock's order, whatever the engine."""
    return replace(plan, schedule={ref: replace(s, thread_group="default") for ref, s in plan.schedule.items()})


@PROPERTY
@given(legal_plans(), st.integers(0, 3), st.integers(0, 4))
def test_each_stream_has_the_clocks_order_whatever_the_timing(plan: PipelinePlan, more: int, submit_ns: int) -> None:
    """The lanes also hold for several threads. The clock, which defines the right order, runs with one thread."""
    wanted = simulated(one_thread(plan))
    assert simulated(plan, submit_ns=submit_ns) == wanted
    flow = {"engine": "DataFlowPipeline", "max_depth": validate_plan(plan).depth + more}
    assert simulated(plan, submit_ns=submit_ns, **flow) == wanted
    assert simulated(plan, submit_ns={name: 5 * i for i, name in enumerate(plan.schedule)}, **flow) == wanted  # type: ignore[dict-item]


@PROPERTY
@given(legal_plans(), st.integers(1, 3))
def test_with_fewer_iterations_than_stages_the_last_stages_are_one(plan: PipelinePlan, max_depth: int) -> None:
    checked = validate_plan(plan)
    order = lane_order(checked, max_depth)
    assert max(order.values()) == min(max_depth, checked.depth) - 1
    cut = {name: replace(s, stage=min(s.stage, max_depth - 1)) for name, s in checked.schedule.items()}
    clock = validate_plan(one_thread(replace(plan, schedule=cut)))
    wanted = by_stream(
        plan,
        [
            (s.task, s.iteration)
            for s in simulate(clock, dict.fromkeys(order, 3), iterations=7, order=list(order)).spans
        ],
    )
    assert simulated(plan, engine="DataFlowPipeline", max_depth=max_depth) == wanted
    # Tasks that share stage and stream keep the order that they have with all stages.
    places, whole = list(order), list(lane_order(checked, checked.depth))
    for a, b in pairwise(
        sorted(whole, key=lambda name: (str(checked.stream(name)), checked.stage(name), whole.index(name)))
    ):
        if (checked.stream(a), checked.stage(a)) == (checked.stream(b), checked.stage(b)):
            assert places.index(a) < places.index(b)


def test_stages_of_one_stream_overlap_as_by_the_clock() -> None:
    """X(1) follows Y(0) only if no other work is left. Otherwise, the stream would wait for C."""
    clock = simulated(mixed())
    assert clock["default"][:6] == [("X", 0), ("X", 1), ("X", 2), ("Y", 0), ("X", 3), ("Y", 1)]
    assert simulated(mixed(), engine="DataFlowPipeline", max_depth=4) == clock
    assert simulated(mixed(), engine="DataFlowPipeline", max_depth=1)["default"][:4] == [
        ("X", 0),
        ("Y", 0),
        ("X", 1),
        ("Y", 1),
    ]
    times = {"X": 4, "C": 9, "Y": 4}
    ends = simulate(mixed(), times, iterations=50, engine="DataFlowPipeline", max_depth=3).completions()
    assert (ends[40] - ends[20]) / 20 <= 9.5  # the bottleneck's time, not the sum


def test_stages_that_no_clock_could_run_are_said_to_be_ignored() -> None:
    plan = plan_of({"first": 3, "second": 0, "third": 1}, [("second", "first")])
    (warning,) = [w for w in validate_plan(plan, clocked=False, order="stages").warnings if "corollary 1" in w]
    assert "no clock could run these stages, so each stream takes one iteration after the other" in warning
    assert "'second' (stage 0) depends on 'first' (stage 3)" in warning
    assert not [w for w in validate_plan(plan, clocked=False).warnings if "corollary" in w]
    order = [("first", 0), ("second", 0), ("third", 0), ("first", 1)]
    assert simulated(plan, engine="DataFlowPipeline", max_depth=3)["default"][:4] == order


@pytest.mark.parametrize("order", ["clock", "ready_first", ["a"], None])
def test_the_order_is_one_of_two(order: Any) -> None:
    pytest.importorskip("torch", reason="the engines need torch")
    from pipelines.schedule import DataFlowPipeline

    with pytest.raises(ValueError, match="use one of 'stages', 'dependencies'"):
        DataFlowPipeline(mixed(), 2, "cpu", order=order)
    if order is not None:
        with pytest.raises(ValueError, match="DataFlowPipeline has 'stages', 'dependencies'"):
            simulate(mixed(), dict.fromkeys(MIXED, 1), engine="DataFlowPipeline", order=order)


# --- the engine


def flow(plan: PipelinePlan, max_depth: int, device: Any = "cpu", **options: Any) -> Any:
    from pipelines.schedule import DataFlowPipeline

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe = DataFlowPipeline(plan, max_depth, device, **options)
    pipe.signal_timeout_s = pipe.progress_timeout_s = 20.0
    return pipe


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@settings(PROPERTY, max_examples=examples(40))
@given(data=st.data(), n=st.integers(1, 6), more=st.integers(0, 2))
def test_the_engine_runs_each_stream_as_the_clocked_one(device: str, data: st.DataObject, n: int, more: int) -> None:
    pytest.importorskip("torch", reason="the engines need torch")
    from pipelines.schedule import SWPipeline

    drawn = draw_plan(data, n)
    orders = []
    for engine in (
        lambda: SWPipeline(one_thread(drawn.plan), device),
        lambda: SWPipeline(drawn.plan, device),
        lambda: flow(drawn.plan, max(drawn.stages.values()) + 1 + more, device),
    ):
        drawn.diary.__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine().run(range(5))
        began = sorted(drawn.diary.began, key=lambda item: drawn.diary.began[item])
        orders.append(by_stream(drawn.plan, began))
    assert orders[1] == orders[2] == orders[0]


@pytest.mark.parametrize("order", ["ready_first", "stage_descending"])
@pytest.mark.parametrize("takes", [[], [True, False, True, False, False]], ids=["steady", "paused"])
def test_a_thread_that_is_late_keeps_its_place_on_the_stream(order: str, takes: list[bool]) -> None:
    """The update's thread is slow to launch. The stream's next forward, from another thread, must wait for it."""
    pytest.importorskip("torch", reason="the engines need torch")
    from pipelines.schedule import SWPipeline

    orders = []
    for group in ("default", "slow"):
        device, launched = LateDevice(), []
        device.launched = launched
        deps = [("update", "forward"), ("report", "update")]
        plan = plan_of(
            {"forward": 0, "update": 0, "report": 1}, deps, stream={"report": "io"}, thread_group={"update": group}
        )
        pipe = SWPipeline(plan, device, order=order)
        list(steps(pipe, pipe.fill_pipeline(range(6)), [*takes, *[True] * 9]))
        orders.append([item for item in launched if item[0] != "report"])
    assert orders[1] == orders[0] == [(name, i) for i in range(6) for name in ("forward", "update")]


@settings(PROPERTY, max_examples=examples(80))
@given(
    data=st.data(),
    n=st.integers(1, 6),
    max_depth=st.integers(1, 5),
    order=st.sampled_from(["stages", "dependencies"]),
    takes=st.lists(st.booleans(), max_size=12),
    batches=st.integers(0, 9),
)
def test_no_batch_for_a_while_holds_nobody_up(
    data: st.DataObject, n: int, max_depth: int, order: str, takes: list[bool], batches: int
) -> None:
    """progress(None) begins no iteration, even if the lanes of an iteration in flight wait for it.

    Later the run continues.
    """
    pytest.importorskip("torch", reason="the engines need torch")
    drawn = draw_plan(data, n)
    pipe = flow(drawn.plan, max_depth, "simulated", order=order)
    source = pipe.fill_pipeline(range(batches))
    done = list(steps(pipe, source, takes))
    assert done == list(range(len(done)))
    pipe.drain()
    began = len(drawn.diary.iterations(next(iter(drawn.stages))))
    drawn.diary.check(drawn.stages, began, drawn.intra, drawn.inter)
    if all(takes) and len(takes) > batches:
        assert began == batches


class LateDevice(SimulatedDevice):
    """A device that records its launches, and takes 2 ms to launch `update`."""

    launched: list[tuple[str, int]]

    def launch(self, stream: Any, body: Any, work: Any) -> None:
        if work.task == "update":
            time.sleep(0.002)
        self.launched.append((work.task, work.iteration))
        super().launch(stream, body, work)


def steps(pipe: Any, source: Iterator[Any], takes: Iterable[bool]) -> Iterator[int]:
    for take in takes:
        try:
            yield pipe.progress(source if take else None)
        except StopIteration:
            if take:
                return


def test_swp_70_the_documents_plan_warns_about_nothing_and_keeps_its_order() -> None:
    pytest.importorskip("torch", reason="the engines need torch")
    from pipelines.schedule import DataFlowPipeline
    from tests.schedule.plans import FUSED_STAGES, fused_sparse_dist

    diary = Diary()
    plan = fused_sparse_dist(diary)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlanWarning)
        pipe = DataFlowPipeline(plan, 5, "cpu")
    pipe.run(range(20))
    dense = [item for item in diary.order if FUSED_STAGES[item[0]] == 2 and item[0] != "EmbLookup"]
    names = [name for name in FUSED_STAGES if FUSED_STAGES[name] == 2 and name != "EmbLookup"]
    assert dense == [(name, i) for i in range(20) for name in names]


def test_h2d_still_runs_ahead() -> None:
    """SWP-58: a lane delays nothing on another stream."""
    pytest.importorskip("torch", reason="the engines need torch")
    import threading

    from tests.schedule.plans import eventually, fused_sparse_dist

    diary, let_go = Diary(), threading.Event()
    pipe = flow(fused_sparse_dist(diary, before={"EmbLookup": lambda ctx: let_go.wait(20) and None}), 5)
    data = pipe.fill_pipeline(range(9))
    assert eventually(lambda: diary.iterations("H2D") == list(range(5)))
    let_go.set()
    assert pipe.progress(data) == 0
    pipe.drain()


@pytest.mark.slow  # the outcome changes only if `legal_plans` does
def test_drawn_plans_hold_streams_of_several_stages() -> None:
    """Otherwise, the properties above would show little."""
    seen = set()

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(legal_plans())
    def look(plan: PipelinePlan) -> None:
        checked = validate_plan(plan)
        streams = {checked.stream(name) for name in checked.names}
        seen.add(max(len({checked.stage(n) for n in checked.names if checked.stream(n) == s}) for s in streams))

    look()
    assert seen >= {1, 2, 3}
