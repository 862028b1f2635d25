"""Plans with one thread group: the caller's thread submits, so tasks are not passed between threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the engines need torch")

from torch.overrides import TorchFunctionMode  # noqa: E402

from pipelines.schedule import DataFlowPipeline, IterContext, PlanWarning, SWPipeline  # noqa: E402
from pipelines.schedule.devices import resolve_device  # noqa: E402
from tests.schedule.plans import FUSED_INTER, FUSED_INTRA, FUSED_STAGES, Diary, fused_sparse_dist, plan_of  # noqa: E402
from tests.schedule.plans import own_threads as engine_threads  # noqa: E402

ENGINES: list[Callable[..., Any]] = [SWPipeline, partial(DataFlowPipeline, max_depth=3)]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=["clocked", "flow"])
CHAIN = {"a": 0, "b": 1}, [("b", "a")]


def threads_of_tasks(engine: Any, device: str, **placed: Any) -> set[int]:
    threads: set[int] = set()
    note = {"a": lambda ctx: threads.add(threading.get_ident())}
    engine(plan_of(*CHAIN, before=note, **placed), device=device).run(range(3))
    return threads


@every_engine
def test_tasks_run_in_the_callers_thread_only_with_one_group_and_a_device_that_runs_at_launch(engine: Any) -> None:
    here = {threading.get_ident()}
    assert threads_of_tasks(engine, "simulated") == here
    assert here.isdisjoint(threads_of_tasks(engine, "simulated", thread_group={"a": "io"}))
    assert here.isdisjoint(threads_of_tasks(engine, "cpu"))


@pytest.mark.parametrize("device", ["simulated", "cpu"])
def test_what_a_task_lets_begin_comes_after_all_that_began_before(device: str) -> None:
    """b may begin with a. c waits for a, and follows b on their stream."""
    device_of = resolve_device(device)
    launched: list[str] = []
    launch = device_of.launch

    def noting(stream: Any, body: Any, work: Any) -> None:
        launched.append(f"{work.task}{work.iteration}")
        launch(stream, body, work)

    device_of.launch = noting  # type: ignore[method-assign]
    plan = plan_of({"a": 0, "b": 0, "c": 0}, [("c", "a")])
    with pytest.warns(PlanWarning, match="share stage 0"):
        pipe = DataFlowPipeline(plan, 2, device_of)
    pipe.run(range(3))
    assert launched == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


@every_engine
def test_no_thread_is_started_for_one_group(engine: Any) -> None:
    pipe = engine(fused_sparse_dist(), device="simulated")
    data = pipe.fill_pipeline(range(9))
    assert engine_threads() == []
    pipe.progress(data)
    pipe.drain()


@every_engine
def test_tasks_submitted_by_the_caller_keep_their_dependencies(engine: Any) -> None:
    for device in ("simulated", "cpu"):
        diary = Diary()
        engine(fused_sparse_dist(diary), device=device).run(range(12))
        diary.check(FUSED_STAGES, 12, FUSED_INTRA, FUSED_INTER)


@every_engine
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_in_a_task_is_the_callers(engine: Any, interruption: type[BaseException]) -> None:
    def interrupted(ctx: IterContext) -> None:
        if ctx.iter_idx == 2 and ctx.batch == "bad":
            raise interruption

    pipe = engine(plan_of(*CHAIN, before={"b": interrupted}), device="simulated")
    with pytest.raises(interruption):
        pipe.run(["bad"] * 9)
    pipe.drain()
    diary = Diary()
    pipe = engine(plan_of(*CHAIN, before={"b": interrupted}, diary=diary), device="simulated")
    with pytest.raises(interruption), pipe:
        pipe.run(["bad"] * 9)
    diary.__init__()
    pipe.run(["good"] * 4)
    diary.check(["a", "b"], 4, [("b", "a")], [])


def look(ctx: IterContext) -> None:
    value = torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)
    ctx.seen = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        value.dtype,
        value.device.type,
    )


MODES: dict[str, Callable[[], Any]] = {
    "usual": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("filled_in", MODES)
@pytest.mark.parametrize("progressed_in", MODES)
@pytest.mark.filterwarnings("ignore:tasks run in the modes")
def test_tasks_in_the_callers_thread_run_in_the_modes_of_fill_pipeline(filled_in: str, progressed_in: str) -> None:
    seen: list[Any] = []
    pipe = SWPipeline(plan_of(*CHAIN, before={"b": look}), device="simulated")
    with MODES[filled_in]():
        data = pipe.fill_pipeline(range(6), lambda ctx: seen.append(ctx.seen))
        expected = IterContext(None, 0)
        look(expected)
    with MODES[progressed_in]():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        for _ in range(6):
            pipe.progress(data)
        assert before == (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
        )
    assert seen == [expected.seen] * 6


class Foreign(TorchFunctionMode):
    """A mode that another thread would not have."""

    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Foreign.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("error")
def test_modes_of_the_caller_that_cannot_be_carried_over_apply_without_a_warning() -> None:
    pipe = SWPipeline(plan_of({"a": 0}, [], before={"a": lambda ctx: torch.ones(1).add(1)}), device="simulated")
    Foreign.calls = 0
    with Foreign(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        pipe.run(range(3))
    assert Foreign.calls >= 3
