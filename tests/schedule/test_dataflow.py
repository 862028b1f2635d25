"""The data-flow engine's own rules, SWP-54 to SWP-60, SWP-70, SWP-71, traps T8 and T10."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the engines need torch")

from pipelines.schedule import DataFlowPipeline, SWPipeline
from pipelines.schedule.devices.cpu import CpuDevice
from pipelines.schedule.engine.firing import Firing, InOrder, firing_of
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.validate import validate_plan
from tests.effort import examples
from tests.schedule.plans import FUSED_INTER, FUSED_INTRA, FUSED_STAGES, Diary, eventually, fused_sparse_dist, plan_of
from tests.schedule.random_plans import draw_plan


@pytest.mark.parametrize("max_depth", [0, -1, 1.5, True, None])
def test_swp_54_max_depth_is_at_least_1(max_depth: Any) -> None:
    with pytest.raises(ValueError, match="max_depth"):
        DataFlowPipeline(fused_sparse_dist(), max_depth, device="cpu")


def test_swp_54_stages_are_ignored() -> None:
    """The stages break corollary 1, and the depth does not match."""
    diary = Diary()
    plan = plan_of({"first": 3, "second": 0}, [("second", "first")], [("second", "first")], diary=diary)
    plan.pipeline_depth = 9
    DataFlowPipeline(plan, 3, "cpu").run(range(6))
    diary.check(["first", "second"], 6, [("second", "first")], [("second", "first")])


TWO_GROUPS = {"thread_group": {"a": "io", "H2D": "io"}}
"""With one thread group the order is known beforehand, and the rules are not asked."""


class Held:
    """A replacement for the threads' queues in which nothing runs until the test allows it."""

    def __init__(self, pipe: DataFlowPipeline) -> None:
        self.pipe = pipe
        self.fired: list[tuple[int, str]] = []
        pipe._enqueue_all = self.note  # type: ignore[method-assign]

    def note(self, items: Iterable[tuple[str, int]]) -> None:
        self.fired += [(iter_idx, name) for name, iter_idx in items]

    def finish(self, iter_idx: int, name: str) -> list[tuple[int, str]]:
        """Mark the task as submitted, and return the tasks that fire because of it."""
        before = len(self.fired)
        self.pipe._after_task_complete(name, iter_idx)
        return self.fired[before:]


def held(max_depth: int = 2) -> tuple[DataFlowPipeline, Held]:
    plan = plan_of({"a": 0, "b": 0, "c": 0}, [("c", "a"), ("c", "b")], [("b", "c")], **TWO_GROUPS)
    pipe = DataFlowPipeline(plan, max_depth, "cpu", order="dependencies")
    return pipe, Held(pipe)


def test_swp_55_the_five_conditions_one_by_one() -> None:
    pipe, queue = held(max_depth=2)
    pipe._try_advance(iter(range(5)))
    # Condition 3: only iterations 0 and 1 have a context. 5: b(1) waits for c(0), and iteration 0 has no predecessor.
    assert queue.fired == [(0, "a"), (0, "b"), (1, "a")]
    assert not pipe._firing.can_fire("a", 2)
    assert not pipe._firing.can_fire("a", 0)  # condition 1: it has already fired
    assert queue.finish(0, "a") == []  # condition 4: c also needs b
    assert queue.finish(0, "b") == [(0, "c")]
    assert queue.finish(0, "c") == [(1, "b")]
    pipe._firing.pending["c"] = 2  # condition 2: the maximum is in flight
    pipe._firing.done |= {("a", 1), ("b", 1)}
    assert not pipe._firing.can_fire("c", 1)
    pipe._firing.pending["c"] = 1
    assert pipe._firing.can_fire("c", 1)


def test_swp_56_done_means_submitted_not_run() -> None:
    """While a(0) still runs on its stream, b(0) is submitted after it."""
    let_go, diary = threading.Event(), Diary()
    plan = plan_of(
        {"a": 0, "b": 0}, [("b", "a")], diary=diary, before={"a": lambda ctx: let_go.wait(20) and None}, **TWO_GROUPS
    )
    pipe = DataFlowPipeline(plan, 1, "cpu")
    data = pipe.fill_pipeline(range(1))
    assert eventually(lambda: pipe._firing.done == {("a", 0), ("b", 0)})
    assert diary.ended == {}
    let_go.set()
    assert pipe.progress(data) == 0
    diary.check(["a", "b"], 1, [("b", "a")], [])
    pipe.drain()


def test_swp_57_a_completed_task_fires_its_followers_of_this_and_the_next_iteration() -> None:
    plan = plan_of({"a": 0, "b": 0, "c": 0}, [("b", "a")], [("c", "a")], **TWO_GROUPS)
    pipe = DataFlowPipeline(plan, 2, "cpu", order="dependencies")
    queue = Held(pipe)
    pipe._try_advance(iter(range(2)))
    assert queue.fired == [(0, "a"), (0, "c"), (1, "a")]
    assert queue.finish(0, "a") == [(0, "b"), (1, "c")]


def test_swp_57_retiring_sweeps_what_a_full_buffer_held_back() -> None:
    pipe, queue = held(max_depth=1)
    data = iter(range(3))
    pipe._try_advance(data)
    assert queue.fired == [(0, "a"), (0, "b")]
    for name in "abc":
        queue.finish(0, name)
    pipe._do_retire(0, data)
    assert queue.fired[3:] == [(1, "a"), (1, "b")]
    pipe._firing.pending["a"] = 1
    pipe._firing.fired.discard(("a", 1))
    pipe._sweep_fire()  # the buffer is full, so nothing fires
    assert queue.fired[5:] == []
    pipe._firing.pending["a"] = 0
    pipe._sweep_fire()
    assert queue.fired[5:] == [(1, "a")]


def test_swp_57_retiring_itself_sweeps() -> None:
    pipe, queue = held(max_depth=2)
    pipe._try_advance(iter(range(2)))
    pipe._firing.fired.discard(("a", 1))
    before = len(queue.fired)
    pipe._sweep_fire()  # by the engine's counts, a is in flight twice
    assert queue.fired[before:] == []
    pipe._do_retire(0, None)
    assert (1, "a") in queue.fired[before:]


def test_swp_56_the_books_are_in_order_before_the_iteration_can_be_retired() -> None:
    early = []

    class Checking(DataFlowPipeline):
        def _after_task_complete(self, name: str, iter_idx: int) -> None:
            early.append(self._slots.of(iter_idx).signals[name].is_set())
            super()._after_task_complete(name, iter_idx)

    Checking(fused_sparse_dist(**TWO_GROUPS), 3, "cpu").run(range(5))
    assert early == [False] * 45


@pytest.mark.parametrize("max_depth", [1, 3, 5])
def test_swp_58_and_71_h2d_bursts_up_to_max_depth_and_no_further(max_depth: int) -> None:
    let_go, diary, taken = threading.Event(), Diary(), []
    blocked = {"Forward": lambda ctx: let_go.wait(20) and None}
    pipe = DataFlowPipeline(fused_sparse_dist(diary, before=blocked), max_depth, "cpu")
    data = pipe.fill_pipeline(taken.append(i) or i for i in range(20))
    assert eventually(lambda: diary.iterations("H2D") == list(range(max_depth)))
    assert taken == list(range(max_depth))
    let_go.set()
    assert pipe.progress(data) == 0
    assert eventually(lambda: diary.iterations("H2D") == list(range(max_depth + 1)))
    pipe.drain()


def test_trap_t10_a_task_counts_as_in_flight_until_its_iteration_is_retired() -> None:
    """The memory bound: never more than max_depth contexts, and pending falls with retirement only."""
    pipe = DataFlowPipeline(fused_sparse_dist(**TWO_GROUPS), 3, "cpu")
    data = pipe.fill_pipeline(range(30))
    for i in range(27):
        assert eventually(lambda: all(pipe._slots.of(n).complete.is_set() for n in list(pipe._contexts)))
        assert sorted(pipe._contexts) == [i, i + 1, i + 2]
        assert set(pipe._firing.pending.values()) == {3}
        assert pipe.progress(data) == i
    pipe.drain()
    assert set(pipe._firing.pending.values()) == {0}


def test_trap_t8_max_depth_1_is_strictly_one_iteration_after_the_other() -> None:
    """SWP-60: this is not a clocked pipeline of depth 3, in which H2D(1) runs before Backward(0)."""
    diary = Diary()
    pipe = DataFlowPipeline(fused_sparse_dist(diary), 1, "cpu")
    pipe.run(range(5))
    last = [max(diary.ended[n, i] for n in FUSED_STAGES) for i in range(5)]
    first = [min(diary.began[n, i] for n in FUSED_STAGES) for i in range(5)]
    assert all(last[i] < first[i + 1] for i in range(4))


def test_swp_70_the_same_plan_object_serves_both_engines() -> None:
    diary = Diary()
    plan = fused_sparse_dist(diary)
    for pipe in (SWPipeline(plan, "cpu"), DataFlowPipeline(plan, max_depth=5, device="cpu")):
        diary.__init__()
        pipe.run(range(9))
        diary.check(FUSED_STAGES, 9, FUSED_INTRA, FUSED_INTER)


def test_swp_60_ordered_tasks_of_one_thread_cannot_block_each_other() -> None:
    """late(i) might be submitted before early(i) on the same thread, and would then wait forever for early's turn."""
    diary, let_go = Diary(), threading.Event()

    class Slow(CpuDevice):
        def launch(self, stream: Any, body: Any, work: Any) -> None:
            if work.task == "slow":
                let_go.wait(20)
            super().launch(stream, body, work)

    plan = plan_of(
        {"slow": 0, "early": 0, "late": 0},
        [("early", "slow")],
        diary=diary,
        thread_group={"slow": "other"},
        globally_ordered={"early": True, "late": True},
    )
    pipe = DataFlowPipeline(plan, 2, Slow())
    pipe.signal_timeout_s = 5.0
    data = pipe.fill_pipeline(range(4))
    let_go.set()
    for i in range(4):
        assert pipe.progress(data) == i
    pipe.drain()
    names = [n for n, _ in diary.order if n != "slow"]
    assert pipe._ordered == ["late", "early"]
    assert names == ["late", "early"] * 4


def test_swp_48_repr_of_the_data_flow_engine() -> None:
    text = repr(DataFlowPipeline(plan_of({"a": 0}, []), 2, "cpu"))
    assert text == "DataFlowPipeline(device=cpu, max_depth=2, tasks=['a'], shortcuts=[])"


def test_fused_inter_dependency_holds_at_every_depth() -> None:
    for max_depth in range(1, 7):
        diary = Diary()
        DataFlowPipeline(fused_sparse_dist(diary), max_depth, "cpu").run(range(15))
        diary.check(FUSED_STAGES, 15, FUSED_INTRA, FUSED_INTER)


def in_one_group(plan: CheckedPlan) -> CheckedPlan:
    for place in plan.schedule.values():
        place.thread_group = "default"
    return plan


def fired_by_one_thread(firing: Firing, events: list[str], max_depth: int) -> list[tuple[str, int]]:
    """What one thread submits while iterations begin, are retired, and find no batch."""
    done: list[tuple[str, int]] = []
    begun = retired = 0
    for event in events:
        fired: list[tuple[str, int]] = []
        if event == "retire" and retired < begun:
            firing.retire(retired)
            retired += 1
            fired = firing.sweep()
        elif event == "let_pass" and retired < begun:
            fired = firing.let_pass(begun - 1)
        elif event == "begin" and begun - retired < max_depth:
            fired = firing.begin(begun)
            begun += 1
        for item in fired:
            done.append(item)
            fired += firing.submitted(*item)
    return done


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize("order", ["stages", "dependencies"])
def test_the_order_known_beforehand_is_that_of_the_rules(order: str, data: st.DataObject) -> None:
    checked = in_one_group(validate_plan(draw_plan(data, data.draw(st.integers(1, 7))).plan, clocked=False))
    max_depth = data.draw(st.integers(1, 4))
    events = ["begin", *data.draw(st.lists(st.sampled_from(["begin", "begin", "retire", "let_pass"]), max_size=20))]
    rules = Firing(checked, max_depth, order)
    wanted = fired_by_one_thread(rules, events, max_depth)
    assert fired_by_one_thread(firing_of(checked, max_depth, order), events, max_depth) == wanted


@pytest.mark.parametrize(
    ("stages", "group", "is_known"),
    [((0, 1), "default", True), ((0, 0), "default", True), ((0, 1), "io", False)],
)
@pytest.mark.parametrize(("stream", "mixes"), [("side", False), (None, True)])
def test_the_order_is_known_with_one_group_and_one_stage_for_each_stream(
    stages: tuple[int, int], group: str, is_known: bool, stream: str | None, mixes: bool
) -> None:
    """On a stream with an earlier stage a task waits for an iteration that may still come."""
    plan = plan_of(dict(zip("ab", stages, strict=True)), [("b", "a")], stream={"b": stream}, thread_group={"b": group})
    pipe = DataFlowPipeline(plan, 2, "cpu")
    assert isinstance(pipe._firing, InOrder) == (is_known and not (mixes and stages == (0, 1)))
