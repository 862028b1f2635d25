"""An engine's threads end however a loop ends, and callers can read the results of iterations (SWP-39, SWP-45)."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need torch")

from pipelines.schedule import DataFlowPipeline, PipelineError, SWPipeline
from pipelines.schedule.devices.cpu import CpuDevice
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
    partial(SWPipeline, device="simulated"),
    partial(DataFlowPipeline, max_depth=4, device="simulated"),
]
IDS = ["clocked", "flow", "clocked_sim", "flow_sim"]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=IDS)


@every_engine
def test_with_drains_at_the_end_and_aborts_after_an_exception(engine: Any) -> None:
    diary = Diary()
    with engine(fused_sparse_dist(diary)) as pipe:
        data = pipe.fill_pipeline(range(9))
        assert pipe.progress(data) == 0
    assert own_threads() == []
    begun = len(diary.iterations("H2D"))
    diary.check(FUSED_STAGES, begun, FUSED_INTRA, FUSED_INTER)  # every iteration that began was finished
    with pytest.raises(ZeroDivisionError), pipe:
        data = pipe.fill_pipeline(range(9))
        pipe.progress(data)
        _ = 1 // 0
    assert own_threads() == []
    diary.__init__()
    with pipe:
        pipe.run(range(6))
    diary.check(FUSED_STAGES, 6, FUSED_INTRA, FUSED_INTER)


@every_engine
def test_with_passes_on_a_failure_of_the_run(engine: Any) -> None:
    def breaks(ctx: Any) -> None:
        if ctx.iter_idx == 3:
            raise KeyError("no such row")

    pipe = engine(fused_sparse_dist(before={"Forward": breaks}))
    with pytest.raises(PipelineError, match="'Forward' failed in iteration 3"), pipe:
        pipe.run(range(9))
    assert own_threads() == []
    with pipe:
        pipe.run(range(3))


def test_abort_runs_nothing_that_has_not_begun() -> None:
    diary, begun, let_go = Diary(), threading.Event(), threading.Event()

    def waits(ctx: Any) -> None:
        begun.set()
        let_go.wait(20)

    for engine in ENGINES[:2]:
        diary.__init__()
        begun.clear()
        let_go.clear()
        pipe = engine(plan_of({"a": 0, "b": 0}, [("b", "a")], diary=diary, before={"a": waits}))
        pipe.fill_pipeline(range(9))
        assert begun.wait(10)
        threading.Timer(0.05, let_go.set).start()
        pipe.abort()
        assert own_threads() == []
        assert (diary.iterations("a"), diary.iterations("b")) == ([0], [])
        pipe.abort()  # nothing is left to abort
        diary.__init__()
        pipe.run(range(4))
        diary.check(["a", "b"], 4, [("b", "a")], [])
        pipe.abort()
        assert pipe._state == "idle"


def test_abort_says_what_it_cannot_end_and_leaves_a_working_engine() -> None:
    let_go, diary = threading.Event(), Diary()
    stuck = {"a": lambda ctx: ctx.batch == "stuck" and not let_go.wait(20) and None}
    pipe = SWPipeline(plan_of({"a": 0}, [], diary=diary, before=stuck), "cpu")
    pipe.join_timeout_s = 0.1
    pipe.fill_pipeline(["stuck"])
    assert eventually(lambda: bool(diary.began))
    with pytest.warns(RuntimeWarning, match="cannot be ended from outside: the thread of stream 'default'"):
        pipe.abort()
    pipe.run(["good"])
    let_go.set()
    assert eventually(lambda: own_threads() == [])


@pytest.mark.slow
@every_engine
def test_what_nobody_holds_any_more_goes_with_its_threads(engine: Any) -> None:
    class Batch:
        pass

    batch = Batch()
    held = weakref.ref(batch)
    pipe = engine(fused_sparse_dist(thread_group={"H2D": "io"}))
    pipe.progress(pipe.fill_pipeline([batch] * 9))
    assert own_threads() != []
    gone = weakref.ref(pipe)
    del pipe, batch
    assert eventually(lambda: gc.collect() >= 0 and gone() is None)
    assert eventually(lambda: own_threads() == [])
    gc.collect()
    assert held() is None


def has_failed(run: Any) -> bool:
    return run.failure is not None


@pytest.mark.parametrize("engine", first_of(ENGINES, 2), ids=IDS)
def test_an_abandoned_engine_with_an_unnoticed_failure_goes_too(engine: Any) -> None:
    def breaks(ctx: Any) -> None:
        raise KeyError(ctx.iter_idx)

    pipe = engine(fused_sparse_dist(before={"Forward": breaks}, thread_group={"H2D": "io"}))
    with contextlib.suppress(PipelineError):  # raises here if the thread fails before the last period is submitted
        pipe.fill_pipeline(range(9))
    assert eventually(partial(has_failed, pipe._run))
    gone = weakref.ref(pipe)
    del pipe
    assert eventually(lambda: gc.collect() >= 0 and gone() is None)
    assert eventually(lambda: own_threads() == [])


def test_an_abandoned_engine_finishes_the_tasks_that_are_running() -> None:
    let_go, diary = threading.Event(), Diary()
    pipe = SWPipeline(
        plan_of({"a": 0, "b": 1}, [("b", "a")], diary=diary, before={"a": lambda ctx: let_go.wait(20) and None}), "cpu"
    )
    pipe.fill_pipeline(range(9))
    assert eventually(lambda: bool(diary.began))
    del pipe
    gc.collect()
    assert own_threads() != []
    let_go.set()
    assert eventually(lambda: own_threads() == [])
    assert ("a", 0) in diary.ended


def test_an_engine_that_ends_does_not_disturb_another_on_its_device() -> None:
    """One engine's drain() closes the streams by name, while the other's first task still runs on one of them."""
    device, let_go, diary = CpuDevice(), threading.Event(), Diary()
    slow = plan_of(
        {"a": 0, "b": 0},
        [("b", "a")],
        diary=diary,
        before={"a": lambda ctx: ctx.iter_idx or (let_go.wait(20) and None)},
    )
    first, second = DataFlowPipeline(slow, 4, device), SWPipeline(plan_of({"x": 0}, []), device)
    first.join_timeout_s = second.join_timeout_s = 0.2
    data = first.fill_pipeline(range(2))
    assert eventually(lambda: bool(diary.began))
    closing = threading.Thread(target=device.stream(None).close, args=(5.0,))
    closing.start()
    assert eventually(lambda: device.stream(None)._lane is None)
    device.stream(None).put(lambda: diary.order.append(("later", 0)))
    threading.Event().wait(0.05)
    assert ("later", 0) not in diary.order
    let_go.set()
    closing.join(10)
    while True:
        try:
            first.progress(data)
        except StopIteration:
            break
    assert eventually(lambda: ("later", 0) in diary.order)
    assert diary.order.index(("later", 0)) >= diary.order.index(("a", 0))
    diary.check(["a", "b"], 2, [("b", "a")], [])
    second.run(range(2))
    device.synchronize()
    for stream in device._streams.values():
        stream.close(5.0)
    assert own_threads() == []


# --- results of an iteration


@every_engine
def test_on_retire_gets_every_finished_iteration_in_order_in_the_callers_thread(engine: Any) -> None:
    got: list[tuple[int, Any, int]] = []

    def take(ctx: Any) -> None:
        got.append((ctx.iter_idx, ctx.did_Backward, threading.get_ident()))

    pipe = engine(fused_sparse_dist())
    wanted = [(i, ("Backward", i, f"batch {i}"), threading.get_ident()) for i in range(7)]
    batches = [f"batch {i}" for i in range(7)]
    for run in (pipe.run, pipe.run_serial):
        got.clear()
        run(batches, on_retire=take)
        assert got == wanted
        pipe.drain()
    got.clear()
    data = pipe.fill_pipeline(batches, take)
    assert [pipe.progress(data), pipe.progress(data)] == [0, 1]
    assert got == wanted[:2]
    pipe.drain()  # finishes the iterations in flight, and returns them too
    assert got == wanted[: len(got)] and len(got) > 3
    seen = len(got)
    pipe.run(batches)  # without the option
    assert len(got) == seen


def test_a_finished_iteration_is_let_go_before_the_next_is_given() -> None:
    """The callback owns it. An engine that kept it would need memory for one more iteration."""
    alive: list[weakref.ref] = []
    counts = []

    class Big:
        pass

    def make(ctx: Any) -> None:
        ctx.big = Big()
        alive.append(weakref.ref(ctx.big))

    def take(ctx: Any) -> None:
        counts.append(sum(ref() is not None for ref in alive))

    DataFlowPipeline(plan_of({"a": 0}, [], before={"a": make}), 1, "simulated").run(range(6), on_retire=take)
    assert max(counts) <= 2  # the returned iteration, and its successor


@every_engine
@pytest.mark.parametrize("error", [ValueError, StopIteration, KeyboardInterrupt])
def test_what_on_retire_raises_stops_the_engine_and_comes_out(engine: Any, error: type[BaseException]) -> None:
    def take(ctx: Any) -> None:
        if ctx.iter_idx == 2:
            raise error("mine")

    pipe = engine(fused_sparse_dist())
    expected = RuntimeError if error is StopIteration else error
    with pytest.raises(expected, match="on_retire raised StopIteration" if error is StopIteration else "mine"):
        pipe.run(range(9), on_retire=take)
    assert own_threads() == []
    with pytest.raises(PipelineError, match="the pipeline has stopped"):
        pipe.progress()
    pipe.drain()
    pipe.run(range(3))


@every_engine
@pytest.mark.parametrize("good", [0, 1, 7])
def test_iterations_before_an_error_of_the_data_are_finished_first(engine: Any, good: int) -> None:
    """A plain loop does the same, and several ranks must.

    All iterations that began are finished when the error is raised.
    """

    def data() -> Iterator[int]:
        yield from range(good)
        raise OSError("disk")

    diary, done = Diary(), []
    pipe = engine(fused_sparse_dist(diary))
    for run in (pipe.run, pipe.run_serial):
        diary.__init__()
        done.clear()
        with pytest.raises(PipelineError, match=f"asked for iteration {good}: OSError: disk"):
            run(data(), on_retire=lambda ctx: done.append(ctx.iter_idx))
        assert done == list(range(good))
        diary.check(FUSED_STAGES, good, FUSED_INTRA, FUSED_INTER)
        pipe.drain()
    if good == 1:  # the error occurred during filling, and drain() does not swallow it
        pipe.fill_pipeline(data())
        assert pipe.progress(None) == 0
        with pytest.raises(PipelineError, match="OSError: disk"):
            pipe.progress(None)
        pipe.drain()
        pipe.fill_pipeline(data())
        with pytest.raises(PipelineError, match="OSError: disk"):
            pipe.drain()
    pipe.run(range(3))
