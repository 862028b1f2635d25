"""Both engines on the cpu device: when tasks run, and for which iteration.

SWP-9 to SWP-16, SWP-33 to SWP-45, SWP-53.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need torch")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.schedule import (
    DataFlowPipeline,
    DeclaredIO,
    IterContext,
    PipelinePlan,
    PipelineTask,
    PlanError,
    ProfileResult,
    SWPipeline,
    TaskProfiler,
    TaskSchedule,
)
from pipelines.schedule.devices.cpu import CpuDevice, CpuStream
from tests.effort import examples
from tests.schedule.plans import (
    FUSED_INTER,
    FUSED_INTRA,
    FUSED_STAGES,
    Diary,
    eventually,
    fused_sparse_dist,
    own_threads,
    plan_of,
    sparse_dist,
)
from tests.schedule.random_plans import draw_plan

ENGINES: list[Callable[..., Any]] = [
    partial(SWPipeline, device="cpu"),
    partial(SWPipeline, device="cpu", order="stage_descending"),
    partial(DataFlowPipeline, max_depth=1, device="cpu"),
    partial(DataFlowPipeline, max_depth=5, device="cpu"),
]
IDS = ["ready_first", "descending", "flow1", "flow5"]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=IDS)


def finish(pipe: Any, data: Any) -> list[int]:
    """Call progress() to the end, and return the iterations in the order in which they came back."""
    done = []
    while True:
        try:
            done.append(pipe.progress(data))
        except StopIteration:
            return done


@every_engine
@pytest.mark.parametrize("n", [0, 1, 2, 3, 20])
def test_swp_38_39_fill_and_progress_run_every_iteration_in_order(engine: Any, n: int) -> None:
    diary = Diary()
    pipe = engine(fused_sparse_dist(diary))
    data = pipe.fill_pipeline([f"batch {i}" for i in range(n)])
    assert finish(pipe, data) == list(range(n))
    diary.check(FUSED_STAGES, n, FUSED_INTRA, FUSED_INTER)
    with pytest.raises(StopIteration):
        pipe.progress(data)
    assert own_threads() == []


@pytest.mark.parametrize(
    "engine",
    [
        *ENGINES,
        partial(SWPipeline, device="simulated"),
        partial(DataFlowPipeline, max_depth=3, device="simulated"),
    ],
    ids=[*IDS, "simulated_clocked", "simulated_flow"],
)
@settings(
    max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data(), n=st.integers(1, 7), iterations=st.integers(0, 6))
def test_swp_33_every_random_legal_plan_completes(engine: Any, data: st.DataObject, n: int, iterations: int) -> None:
    """No plan hangs, every task sees its own iteration's context, and every dependency and order is kept."""
    drawn = draw_plan(data, n)
    pipe = quiet(engine, drawn.plan)
    pipe.signal_timeout_s = pipe.progress_timeout_s = 20.0
    pipe.run(range(iterations))
    drawn.diary.check(drawn.stages, iterations, drawn.intra, drawn.inter)
    for name in drawn.stages:
        assert drawn.diary.iterations(name) == list(range(iterations))
    ordered = [ref.name for ref, s in drawn.plan.schedule.items() if s.globally_ordered]  # type: ignore[union-attr]
    spans = sorted((drawn.diary.began[k], drawn.diary.ended[k]) for k in drawn.diary.ended if k[0] in ordered)
    assert all(end < start for (_, end), (start, _) in pairwise(spans))
    assert own_threads() == []


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), n=st.integers(2, 6), fault=st.sampled_from(["cycle", "corollary 1", "corollary 3", "unknown"]))
def test_swp_33_every_random_plan_with_a_fault_is_refused(data: st.DataObject, n: int, fault: str) -> None:
    drawn = draw_plan(data, n)
    a, b = data.draw(st.permutations(sorted(drawn.stages)))[:2]
    settings_of = {ref.name: s for ref, s in drawn.plan.schedule.items()}  # type: ignore[union-attr]
    if fault == "cycle":
        drawn.plan.intra_iter_deps += [(a, b), (b, a)]
    elif fault == "unknown":
        drawn.plan.intra_iter_deps.append((a, "nobody"))
    elif fault == "corollary 1":
        settings_of[b].stage = settings_of[a].stage + data.draw(st.integers(1, 3))
        drawn.plan.intra_iter_deps.append((a, b))
    else:
        settings_of[b].stage = settings_of[a].stage + data.draw(st.integers(2, 4))
        drawn.plan.inter_iter_deps.append((a, b))
    with pytest.raises(PlanError, match=r"cycle|corollary|nobody"):
        quiet(partial(SWPipeline, device="cpu"), drawn.plan)
    if fault in ("cycle", "unknown"):
        with pytest.raises(PlanError):
            quiet(partial(DataFlowPipeline, max_depth=2, device="cpu"), drawn.plan)


def quiet(engine: Any, plan: PipelinePlan) -> Any:
    """Create an engine without warnings, which random plans cause but which do not matter here."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return engine(plan)


class SpyDevice(CpuDevice):
    """A device that records the engine's calls."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []

    def record(self, event: Any, stream: Any) -> None:
        self.asked.append(("record", stream.name, event))
        super().record(event, stream)

    def wait(self, stream: Any, event: Any) -> None:
        self.asked.append(("wait", stream.name, event))
        super().wait(stream, event)

    def launch(self, stream: Any, body: Any, work: Any) -> None:
        self.asked.append(("launch", stream.name, work.label))
        super().launch(stream, body, work)


@every_engine
def test_swp_9_and_13_every_dependency_is_a_wait_and_every_task_ends_with_its_record(engine: Any) -> None:
    device = SpyDevice()
    plan = plan_of({"a": 0, "b": 0}, [("b", "a")], [("a", "b")], stream={"a": "x"})
    pipe = engine(plan, device=device)
    pipe.run(range(2))
    events = [(pipe._slots.of(i).events["a"], pipe._slots.of(i).events["b"]) for i in (0, 1)]
    assert device.asked == [
        ("launch", "x", "SWP/a/iter0"),  # SWP-10: iteration 0 waits for no earlier iteration
        ("record", "x", events[0][0]),
        ("wait", "default", events[0][0]),
        ("launch", "default", "SWP/b/iter0"),
        ("record", "default", events[0][1]),
        ("wait", "x", events[0][1]),
        ("launch", "x", "SWP/a/iter1"),
        ("record", "x", events[1][0]),
        ("wait", "default", events[1][0]),
        ("launch", "default", "SWP/b/iter1"),
        ("record", "default", events[1][1]),
    ]


@every_engine
def test_a_stream_does_not_wait_for_itself_and_records_only_what_others_wait_for(engine: Any) -> None:
    device = SpyDevice()
    plan = plan_of({"a": 0, "b": 0, "c": 0}, [("b", "a"), ("c", "b"), ("c", "a")], [("a", "b")], stream={"c": "x"})
    pipe = engine(plan, device=device)
    pipe.run([1])
    events = pipe._slots.of(0).events
    assert device.asked == [
        ("launch", "default", "SWP/a/iter0"),
        ("record", "default", events["a"]),
        ("launch", "default", "SWP/b/iter0"),
        ("record", "default", events["b"]),
        ("wait", "x", events["b"]),
        ("wait", "x", events["a"]),
        ("launch", "x", "SWP/c/iter0"),
        ("record", "x", events["c"]),
    ]
    alone = SpyDevice()
    engine(plan_of({"a": 0, "b": 0}, [("b", "a")], [("a", "b")]), device=alone).run([1])
    assert [call[0] for call in alone.asked] == ["launch", "launch", "record"]


def test_swp_9_the_event_is_recorded_before_the_signal_is_set() -> None:
    pipe: Any = None

    class Checking(CpuDevice):
        set_too_early = False

        def record(self, event: Any, stream: Any) -> None:
            slot = pipe._slots.of(0)
            self.set_too_early |= slot.signals["a"].is_set()
            super().record(event, stream)

    device = Checking()
    pipe = SWPipeline(plan_of({"a": 0}, []), device)
    pipe.run([1])
    assert not device.set_too_early
    assert pipe._slots.of(0).signals["a"].is_set()


@every_engine
def test_swp_10_only_the_iteration_before_is_waited_for_and_iteration_0_for_none(engine: Any) -> None:
    diary = Diary()
    engine(plan_of({"a": 0, "b": 1}, [("b", "a")], [("a", "b")], diary=diary)).run(range(5))
    diary.check(["a", "b"], 5, [("b", "a")], [("a", "b")])
    assert diary.order == [(name, i) for i in range(5) for name in "ab"]  # the dependency makes it serial (SWP-24)


@every_engine
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("stream", [None, "side"])
@pytest.mark.parametrize("group", ["default", "other"])
def test_swp_11_a_dependency_means_the_same_on_any_stage_stream_and_thread(
    engine: Any, stage: int, stream: str | None, group: str
) -> None:
    diary = Diary()
    intra, inter = [("b", "a")], [("a", "b")]
    placed = {"stream": {"b": stream}, "thread_group": {"b": group}}
    engine(plan_of({"a": 0, "b": stage}, intra, inter, diary=diary, **placed)).run(range(6))
    diary.check("ab", 6, intra, inter)


def test_swp_12_tasks_go_to_their_groups_queue_in_submission_order() -> None:
    groups = {"H2D": "memcpy"}
    pipe = SWPipeline(fused_sparse_dist(thread_group=groups), "cpu")
    put: dict[str, list[Any]] = {"memcpy": [], "default": []}

    class Noting:
        def __init__(self, group: str) -> None:
            self.group = group

        def put(self, item: Any) -> None:
            put[self.group].append(item)

    pipe._work_queues = {n: Noting(groups.get(n, "default")) for n in FUSED_STAGES}  # type: ignore[assignment]
    data = iter(range(3))
    for _ in range(3):
        pipe._enqueue_period(data)
    assert put["memcpy"] == [(0, "H2D"), (1, "H2D"), (2, "H2D")]
    third = [(2 - FUSED_STAGES[n], n) for n in pipe._enqueue_order if n != "H2D"]
    assert put["default"] == [(0, "InputDistStart"), (0, "InputDistWait"), *third]


def test_swp_14_a_task_of_another_thread_is_waited_for() -> None:
    diary, let_go = Diary(), threading.Event()
    stages, deps = {"H2D": 0, "WaitBatch": 0}, [("WaitBatch", "H2D")]
    plan = plan_of(
        stages,
        deps,
        diary=diary,
        before={"H2D": lambda ctx: let_go.wait(20) and None},
        stream={"H2D": "memcpy"},
        thread_group={"H2D": "memcpy"},
    )
    pipe = SWPipeline(plan, "cpu")
    data = pipe.fill_pipeline(range(1))
    assert eventually(lambda: ("H2D", 0) in diary.began)
    assert ("WaitBatch", 0) not in diary.began
    let_go.set()
    assert finish(pipe, data) == [0]
    diary.check(stages, 1, deps, [])


def submitted(pipe: SWPipeline, periods: int) -> list[dict[int, int]]:
    """Return the iteration of each stage in each period."""
    by_period: list[dict[int, int]] = []
    data = iter(range(100))

    def note(items: Any) -> None:
        by_period[-1].update({pipe._stages[name]: iter_idx for name, iter_idx in items})

    pipe._enqueue_all = note  # type: ignore[method-assign]
    for _ in range(periods):
        by_period.append({})
        pipe._enqueue_period(data)
    return by_period


def test_swp_15_and_16_iteration_is_period_minus_stage() -> None:
    pipe = SWPipeline(sparse_dist(), "cpu")
    assert pipe.depth == 3
    assert submitted(pipe, 5) == [{0: 0}, {0: 1, 1: 0}, {0: 2, 1: 1, 2: 0}, {0: 3, 1: 2, 2: 1}, {0: 4, 1: 3, 2: 2}]


def test_swp_34_h2d_3_is_in_period_3_and_input_dist_start_3_in_period_4() -> None:
    periods = submitted(SWPipeline(sparse_dist(), "cpu"), 5)
    assert periods[3][0] == 3
    assert periods[4][1] == 3


@pytest.mark.parametrize("order", ["ready_first", "stage_descending"])
def test_swp_20_and_21_scenarios_1_and_2_run(order: str) -> None:
    for groups in ({"A": "T1", "B": "T1"}, {"A": "T1", "D": "T1", "C": "T2", "B": "T2"}):
        diary = Diary()
        stages = {n: int(n in "BD") for n in groups}
        inter = [("A", "B"), ("C", "D")][: len(groups) // 2]
        plan = plan_of(stages, [], inter, diary=diary, thread_group=groups, stream={n: n for n in groups})
        SWPipeline(plan, "cpu", order=order).run(range(6))
        diary.check(groups, 6, [], inter)


def test_swp_20_the_ascending_order_hangs_where_descending_does_not() -> None:
    """A is submitted first and waits for B, which is behind it. So the scenario detects a wrong order."""
    pipe = SWPipeline(plan_of({"A": 0, "B": 1}, [], [("A", "B")]), "cpu")
    pipe.signal_timeout_s = 0.2
    pipe._enqueue_order = ["A", "B"]
    with pytest.raises(RuntimeError, match=r"task 'A' of iteration 1 waited 0.2 s for 'B' of iteration 0"):
        pipe.run(range(3))
    pipe.drain()


def test_trap_t7_a_slot_is_not_reused_while_the_next_iteration_may_wait_for_it() -> None:
    """EmbLookup(i) waits for Backward(i-1) in the period in which iteration i-1+depth begins."""
    diary = Diary()
    pipe = SWPipeline(fused_sparse_dist(diary), "cpu")
    assert len(pipe._slots) == 4
    pipe.run(range(12))
    diary.check(FUSED_STAGES, 12, FUSED_INTRA, FUSED_INTER)


def test_trap_t7_the_naive_number_of_slots_fails() -> None:
    class Naive(SWPipeline):
        _spare_slots = 0
        signal_timeout_s = 1.0

    pipe = Naive(fused_sparse_dist(), "cpu")
    assert len(pipe._slots) == 3
    with pytest.raises(RuntimeError, match=r"iteration 3 uses them now|waited 1 s for 'Backward'"):
        pipe.run(range(12))


def test_swp_38_fill_starts_depth_periods_and_refuses_a_second_call() -> None:
    taken = []
    pipe = SWPipeline(sparse_dist(), "cpu")
    data = pipe.fill_pipeline(taken.append(i) or i for i in range(10))
    assert taken == [0, 1, 2]
    with pytest.raises(RuntimeError, match="drain"):
        pipe.fill_pipeline(range(3))
    assert pipe.progress(data) == 0
    assert taken == [0, 1, 2, 3]
    pipe.drain()
    assert finish(pipe, pipe.fill_pipeline(range(2))) == [0, 1]


@every_engine
def test_swp_39_none_takes_no_batch_but_finishes_what_is_in_flight(engine: Any) -> None:
    diary, taken = Diary(), []
    pipe = engine(fused_sparse_dist(diary))
    data = pipe.fill_pipeline(taken.append(i) or i for i in range(10))
    in_flight = len(taken)
    for i in range(in_flight):
        assert pipe.progress(None) == i
    assert len(taken) == in_flight
    with pytest.raises(StopIteration):
        pipe.progress(None)
    assert finish(pipe, data) == list(range(in_flight, 10))  # with data again, the pipeline refills and continues
    diary.check(FUSED_STAGES, 10, FUSED_INTRA, FUSED_INTER)


@every_engine
def test_swp_39_a_pause_in_the_data_leaves_a_bubble_and_breaks_nothing(engine: Any) -> None:
    diary = Diary()
    pipe = engine(fused_sparse_dist(diary))
    data = pipe.fill_pipeline(range(12))
    done = [pipe.progress(data)]
    for source in (None, data, data, None, data):
        try:
            done.append(pipe.progress(source))
        except StopIteration:
            assert source is None
    assert done + finish(pipe, data) == list(range(12))
    diary.check(FUSED_STAGES, 12, FUSED_INTRA, FUSED_INTER)


def test_swp_39_progress_wants_the_iterator_and_a_filled_pipeline() -> None:
    pipe = SWPipeline(sparse_dist(), "cpu")
    with pytest.raises(RuntimeError, match="fill_pipeline"):
        pipe.progress(iter([]))
    pipe.fill_pipeline([1, 2])
    with pytest.raises(TypeError, match="iterator"):
        pipe.progress([1, 2])  # type: ignore[arg-type]
    pipe.drain()


@every_engine
def test_swp_40_41_run_and_run_serial_return_seconds_and_do_the_same(engine: Any, capsys: Any) -> None:
    for way in ("run", "run_serial"):
        diary = Diary()
        pipe = engine(fused_sparse_dist(diary))
        assert getattr(pipe, way)(range(4), verbose=True) > 0
        diary.check(FUSED_STAGES, 4, FUSED_INTRA, FUSED_INTER)
        assert "4 iterations in" in capsys.readouterr().out
    assert own_threads() == []


def test_swp_41_serial_runs_make_no_thread_and_follow_the_topological_order() -> None:
    seen = set()
    diary = Diary()
    noting = {name: (lambda ctx: seen.add(threading.current_thread())) for name in FUSED_STAGES}
    pipe = SWPipeline(fused_sparse_dist(diary, before=noting), "cpu")
    pipe.run_serial(range(2))
    assert seen == {threading.current_thread()}
    assert [n for n, i in diary.order if i == 1] == pipe._serial_order


def test_swp_42_one_serial_iteration_needs_no_fill() -> None:
    diary = Diary()
    pipe = SWPipeline(fused_sparse_dist(diary), "cpu")
    pipe.run_one_serial_iter("batch", iter_idx=7)
    assert {i for _, i in diary.order} == {7}
    data = pipe.fill_pipeline(range(5))
    with pytest.raises(RuntimeError, match="drain"):
        pipe.run_one_serial_iter("batch")
    finish(pipe, data)


@every_engine
def test_swp_45_drain_finishes_what_is_in_flight_and_the_iterator_can_be_changed(engine: Any) -> None:
    diary = Diary()
    pipe = engine(fused_sparse_dist(diary))
    data = pipe.fill_pipeline(range(100))
    pipe.progress(data)
    pipe.drain()
    assert own_threads() == []
    n = len(diary.iterations("H2D"))
    diary.check(FUSED_STAGES, n, FUSED_INTRA, FUSED_INTER)
    assert n >= 1
    diary.__init__()
    assert finish(pipe, pipe.fill_pipeline(range(3))) == [0, 1, 2]
    diary.check(FUSED_STAGES, 3, FUSED_INTRA, FUSED_INTER)
    pipe.drain()
    pipe.drain()


@every_engine
def test_swp_4_ordered_tasks_of_two_streams_do_not_run_beside_each_other(engine: Any) -> None:
    """Launching in order would not suffice on a device whose streams run the bodies later."""
    diary, let_go = Diary(), threading.Event()
    names = ["first", "second", "free"]
    plan = plan_of(
        dict.fromkeys(names, 0),
        [],
        diary=diary,
        before={"first": lambda ctx: let_go.wait(20) and None},
        stream={name: name for name in names},
        thread_group={name: name for name in names},
        globally_ordered={"first": True, "second": True},
    )
    pipe = engine(plan)
    data = pipe.fill_pipeline(range(3))
    assert eventually(lambda: ("free", 0) in diary.ended and pipe._slots.of(0).complete.is_set())
    assert ("second", 0) not in diary.began  # submitted, but waiting for first
    let_go.set()
    finish(pipe, data)
    assert [entry for entry in diary.order if entry[0] != "free"] == [(n, i) for i in range(3) for n in names[:2]]


def test_swp_53_contexts_live_from_copy_to_backward() -> None:
    """Depth 2 and 3 batches: while iteration 0 computes, only iterations 0 and 1 have a context."""
    alive = []
    stages = {"CopyBatch": 0, "Forward": 1, "Backward": 1}
    deps = [("Forward", "CopyBatch"), ("Backward", "Forward")]
    groups = {"CopyBatch": "io", "Forward": "comp", "Backward": "comp"}
    plan = plan_of(stages, deps, stream={"CopyBatch": "io"}, thread_group=groups)
    pipe = SWPipeline(plan, "cpu")
    data = pipe.fill_pipeline(["a", "b", "c"])
    while True:
        alive.append((sorted(pipe._contexts), pipe._slots.of(min(pipe._contexts, default=2)).complete.wait(10)))
        try:
            pipe.progress(data)
        except StopIteration:
            break
    assert alive == [([0, 1], True), ([1, 2], True), ([2], True), ([], True)]


def test_swp_1_each_iteration_in_flight_has_its_own_context() -> None:
    contexts: dict[int, Any] = {}
    before = {"a": lambda ctx: contexts.__setitem__(ctx.iter_idx, ctx)}
    pipe = SWPipeline(plan_of({"a": 0, "b": 1}, [("b", "a")], before=before), "cpu")
    data = pipe.fill_pipeline("wxyz")
    finish(pipe, data)
    assert len({id(c) for c in contexts.values()}) == 4
    assert [contexts[i].batch for i in range(4)] == list("wxyz")
    assert [contexts[i].did_b for i in range(4)] == [("b", i, b) for i, b in enumerate("wxyz")]


def test_swp_6_stream_objects_and_names_work_alike() -> None:
    mine, diary = CpuStream("mine"), Diary()
    task, other = diary.task("a"), diary.task("b")
    plan = PipelinePlan({task: TaskSchedule(stream=mine), other: TaskSchedule(stream="named")}, [(other, task)])
    SWPipeline(plan, "cpu").run(range(3))
    diary.check(["a", "b"], 3, [("b", "a")], [])
    with pytest.raises(TypeError, match="CpuStream"):
        SWPipeline(PipelinePlan({PipelineTask("x", print): TaskSchedule(stream=object())}, []), "cpu")


def test_swp_36_the_documents_modules_have_the_documented_names() -> None:
    from pipelines.schedule.engine import dataflow_pipeline, sw_pipeline

    for cls in (
        IterContext,
        DeclaredIO,
        PipelineTask,
        TaskSchedule,
        PipelinePlan,
        ProfileResult,
        SWPipeline,
        TaskProfiler,
    ):
        assert getattr(sw_pipeline, cls.__name__) is cls
    assert dataflow_pipeline.DataFlowPipeline is DataFlowPipeline


def test_swp_35_both_engines_share_one_abstract_base() -> None:
    from pipelines.schedule.engine.pipeline import _PipelineBase

    assert SWPipeline.__base__ is DataFlowPipeline.__base__ is _PipelineBase
    with pytest.raises(TypeError, match="abstract"):
        _PipelineBase(sparse_dist(), None, 3)  # type: ignore[abstract, arg-type]


@pytest.mark.parametrize("device", ["tpu", "cuda:x", 1.5, None])
def test_an_unknown_device_is_refused(device: Any) -> None:
    with pytest.raises(ValueError, match="cpu"):
        SWPipeline(sparse_dist(), device)
