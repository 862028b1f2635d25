"""Failures: nothing hangs or is lost silently.

Errors and time-outs reach the caller, and the engine can be used again.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need torch")

from pipelines.schedule import DataFlowPipeline, PipelineError, PipelineTimeout, SWPipeline
from pipelines.schedule.devices.cpu import CpuDevice
from pipelines.schedule.engine.sequencer import _SubmissionSequencer
from tests.effort import first_of
from tests.schedule.plans import (
    FUSED_INTER,
    FUSED_INTRA,
    FUSED_STAGES,
    Diary,
    eventually,
    fused_sparse_dist,
    own_threads,
    plan_of,
)

ENGINES: list[Callable[..., Any]] = [
    partial(SWPipeline, device="cpu"),
    partial(DataFlowPipeline, max_depth=4, device="cpu"),
]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=["clocked", "flow"])
GROUPS = {name: {"H2D": "io", "EmbLookup": "emb"}.get(name, "default") for name in FUSED_STAGES}


TELLING = ("H2D", "EmbLookup", "Backward")
"""One task of each thread group."""


class Breaks:
    """A function that raises once, in one iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self.done = False

    def __call__(self, ctx: Any) -> None:
        if ctx.iter_idx == self.iteration and not self.done:
            self.done = True
            raise KeyError("no such row")


@every_engine
@pytest.mark.parametrize("task", first_of(sorted(FUSED_STAGES, key=lambda task: task not in TELLING), len(TELLING)))
@pytest.mark.parametrize("iteration", [0, 5])
def test_swp_39_a_tasks_error_is_raised_with_task_and_iteration(engine: Any, task: str, iteration: int) -> None:
    diary = Diary()
    plan = fused_sparse_dist(diary, before={task: Breaks(iteration)}, thread_group=GROUPS)
    pipe = engine(plan)
    with pytest.raises(PipelineError, match=f"task '{task}' failed in iteration {iteration}: KeyError") as caught:
        pipe.run(range(20))
    assert (caught.value.task, caught.value.iteration) == (task, iteration)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value.__cause__, KeyError)
    assert own_threads() == []
    with pytest.raises(RuntimeError, match="drain"):
        pipe.progress(iter([]))
    with pytest.raises(RuntimeError, match="drain"):
        pipe.fill_pipeline([])
    pipe.drain()
    diary.__init__()
    pipe.run(range(6))
    diary.check(FUSED_STAGES, 6, FUSED_INTRA, FUSED_INTER)


@every_engine
@pytest.mark.parametrize("way", ["run", "run_serial"])
def test_a_task_that_runs_another_engine_is_the_one_that_failed(engine: Any, way: str) -> None:
    inner = SWPipeline(plan_of({"step": 0}, [], before={"step": Breaks(0)}), "simulated")
    evaluating = {"evaluate": lambda ctx: inner.run(range(2)) and None if ctx.iter_idx == 3 else None}
    pipe = engine(plan_of({"evaluate": 0}, [], before=evaluating))
    message = "task 'evaluate' failed in iteration 3: PipelineError: task 'step' failed in iteration 0: KeyError"
    with pytest.raises(PipelineError, match=message) as caught:
        getattr(pipe, way)(range(6))
    assert (caught.value.task, caught.value.iteration) == ("evaluate", 3)
    assert isinstance(caught.value.__cause__, PipelineError) and caught.value.__cause__.task == "step"


@every_engine
@pytest.mark.parametrize("good", [0, 1, 7])
def test_an_error_of_the_data_iterator_names_the_iteration(engine: Any, good: int) -> None:
    def data() -> Iterator[int]:
        yield from range(good)
        raise OSError("disk")

    pipe = engine(fused_sparse_dist())
    with pytest.raises(
        PipelineError, match=f"data iterator failed when asked for iteration {good}: OSError: disk"
    ) as caught:
        pipe.run(data())
    assert caught.value.iteration == good
    assert isinstance(caught.value.__cause__, OSError)
    assert own_threads() == []
    pipe.drain()
    pipe.run(range(3))


@every_engine
def test_swp_39_a_task_that_does_not_end_times_out_by_name(engine: Any) -> None:
    let_go = threading.Event()
    stuck = {"Forward": lambda ctx: ctx.iter_idx == 2 and not let_go.wait(20) and None}
    pipe = engine(fused_sparse_dist(before=stuck, thread_group=GROUPS))
    pipe.progress_timeout_s, pipe.join_timeout_s = 0.3, 0.1
    with pytest.raises(
        PipelineTimeout, match=r"iteration 2 is not done after 0.3 s: .*'Forward' of iteration 2 is running"
    ) as caught:
        pipe.run(range(10))
    assert (caught.value.task, caught.value.iteration) == ("Forward", 2)
    assert "cannot be ended from outside" in caught.value.__notes__[0]
    assert "'default'" in caught.value.__notes__[0]
    let_go.set()
    pipe.drain()
    pipe.run(range(4))
    for thread in threading.enumerate():
        if thread.name.startswith("cpu stream"):
            thread.join(10)
    assert own_threads() == []


@every_engine
def test_swp_9_a_signal_that_does_not_come_times_out_with_both_tasks_named(engine: Any) -> None:
    let_go = threading.Event()

    class Slow(CpuDevice):
        """A device whose launch of b(1) blocks the submitting thread, like a CUDA call that synchronizes."""

        def launch(self, stream: Any, body: Any, work: Any) -> None:
            if (work.task, work.iteration) == ("b", 1):
                let_go.wait(20)
            else:
                super().launch(stream, body, work)

    stages = {"a": 0, "b": 0, "c": 0}
    groups = {"a": "A", "b": "B", "c": "C"}
    pipe = engine(plan_of(stages, [("b", "a"), ("c", "b")], thread_group=groups), device=Slow())
    pipe.signal_timeout_s, pipe.progress_timeout_s, pipe.join_timeout_s = 0.2, 0.6, 0.1
    slots = pipe._slots
    with pytest.raises(PipelineTimeout, match=r"(task 'c' of iteration 1 waited 0.2 s for 'b')|('b' has not begun)"):
        pipe.run(range(5))
    let_go.set()
    pipe.drain()
    assert pipe._slots is not slots  # the abandoned thread writes into the old slots
    pipe.run(range(5))


@every_engine
@pytest.mark.filterwarnings("ignore::pipelines.schedule.PlanWarning")
def test_swp_67_who_waits_for_its_turn_is_let_go_by_a_failure(engine: Any) -> None:
    """`second` waits for its turn after `first`, and `first` depends on `base`.

    Launching `base` fails, and the failure must release `second`.
    """
    pipe: Any = None

    class Broken(CpuDevice):
        def launch(self, stream: Any, body: Any, work: Any) -> None:
            if work.task == "base":
                if clocked:
                    assert eventually(lambda: bool(pipe._sequencer._turn._waiters))  # type: ignore[attr-defined]
                raise RuntimeError("no such kernel")
            super().launch(stream, body, work)

    names = ["base", "first", "second"]
    own = {name: name for name in names}  # on a common stream, second would wait for first before its turn
    ordered = {"first": True, "second": True}
    plan = plan_of(dict.fromkeys(names, 0), [("first", "base")], stream=own, thread_group=own, globally_ordered=ordered)
    pipe = engine(plan, device=Broken())
    clocked = isinstance(pipe, SWPipeline)  # data flow does not submit second before first
    pipe.signal_timeout_s = 20.0
    if clocked:
        pipe._enqueue_order = names
    with pytest.raises(PipelineError, match="'base' failed in iteration 0: RuntimeError: no such kernel") as caught:
        pipe.run(range(1))
    assert not hasattr(caught.value, "__notes__")
    assert own_threads() == []


def test_swp_45_an_error_while_draining_is_raised_and_the_engine_is_ready() -> None:
    pipe = SWPipeline(fused_sparse_dist(before={"Backward": Breaks(1)}), "cpu")
    pipe.fill_pipeline(range(5))
    with pytest.raises(PipelineError, match="'Backward' failed in iteration 1"):
        pipe.drain()
    assert own_threads() == []
    pipe.run(range(3))


def test_swp_42_an_error_in_a_serial_iteration_names_it_too() -> None:
    pipe = SWPipeline(fused_sparse_dist(before={"Backward": Breaks(4)}), "cpu")
    with pytest.raises(PipelineError, match="'Backward' failed in iteration 4: KeyError"):
        pipe.run_one_serial_iter("batch", 4)
    pipe.run_one_serial_iter("batch", 4)


@every_engine
def test_after_a_failure_what_was_launched_does_not_run(engine: Any) -> None:
    diary, broken, let_go = Diary(), threading.Event(), threading.Event()

    def breaks(ctx: Any) -> None:
        if ctx.iter_idx == 0:
            let_go.wait(20)
            broken.set()
            raise ValueError("first")

    pipe = engine(plan_of({"a": 0, "b": 0}, [("b", "a")], diary=diary, before={"a": breaks}))
    pipe.fill_pipeline(range(8))
    let_go.set()
    assert broken.wait(10)
    with pytest.raises(PipelineError, match="'a' failed in iteration 0"):
        pipe.progress(None)
    assert diary.iterations("b") == []


def test_an_interrupt_ends_the_threads() -> None:
    def data() -> Iterator[int]:
        yield from range(4)
        raise KeyboardInterrupt

    pipe = SWPipeline(fused_sparse_dist(), "cpu")
    with pytest.raises(KeyboardInterrupt):
        pipe.run(data())
    assert own_threads() == []
    pipe.drain()
    pipe.run(range(3))


@every_engine
def test_a_tasks_exit_is_an_error_like_any_other(engine: Any) -> None:
    def leave(ctx: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(PipelineError, match="'a' failed in iteration 0: SystemExit"):
        engine(plan_of({"a": 0}, [], before={"a": leave})).run(range(3))
    assert own_threads() == []


def test_swp_67_the_sequencer_runs_by_number_whoever_comes_first() -> None:
    order: list[int] = []
    sequencer = _SubmissionSequencer(timeout_s=20)
    threads = [
        threading.Thread(target=sequencer.execute_ordered, args=(n, partial(order.append, n))) for n in (2, 3, 1)
    ]
    for thread in threads:
        thread.start()
    sequencer.execute_ordered(0, lambda: order.append(0))
    for thread in threads:
        thread.join(20)
    assert order == [0, 1, 2, 3]
    sequencer.reset()
    sequencer.execute_ordered(0, lambda: order.append(9))
    assert order[-1] == 9


def test_swp_67_the_sequencer_times_out_and_goes_on_after_an_error() -> None:
    sequencer = _SubmissionSequencer(timeout_s=0.05)
    with pytest.raises(RuntimeError, match=r"waited 0.05 s for submission number 0"):
        sequencer.execute_ordered(1, lambda: None)
    with pytest.raises(ZeroDivisionError):
        sequencer.execute_ordered(0, lambda: 1 // 0 and None)
    assert sequencer.execute_ordered(1, lambda: None)
    sequencer.abort()
    assert not sequencer.execute_ordered(7, lambda: pytest.fail("ran after abort"))
    assert _SubmissionSequencer().timeout_s == 30


def test_the_documented_time_limits() -> None:
    """SWP-9 (30 s), SWP-39 (60 s), SWP-67 (30 s)."""
    pipe = SWPipeline(fused_sparse_dist(), "cpu")
    assert (pipe.signal_timeout_s, pipe.progress_timeout_s, pipe._sequencer.timeout_s) == (30, 60, 30)


def test_errors_travel_between_processes() -> None:
    for kind in (PipelineError, PipelineTimeout):
        error = pickle.loads(pickle.dumps(kind("text", "task", 3)))
        assert (type(error), str(error), error.task, error.iteration) == (kind, "text", "task", 3)
