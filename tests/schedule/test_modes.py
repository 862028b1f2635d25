"""Tasks run in the modes of the loop around them, like a plain loop's steps.

Modes that cannot be transferred cause warnings.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the engines need torch")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from pipelines.schedule import DataFlowPipeline, IterContext, SWPipeline  # noqa: E402
from pipelines.schedule.engine.modes import Modes  # noqa: E402
from tests.schedule.plans import fused_sparse_dist, plan_of  # noqa: E402

ENGINES: list[Callable[..., Any]] = [
    partial(SWPipeline, device="cpu"),
    partial(DataFlowPipeline, max_depth=3, device="cpu"),
    partial(SWPipeline, device="simulated"),
]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=["clocked", "flow", "simulated"])

MODES: dict[str, Callable[[], AbstractContextManager]] = {
    "usual": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "grad inside no_grad": lambda: Both(torch.no_grad(), torch.enable_grad()),
    "autocast and no_grad": lambda: Both(torch.autocast("cpu", torch.float16, cache_enabled=False), torch.no_grad()),
}


class Both:
    """Two context managers, one inside the other."""

    def __init__(self, *modes: Any) -> None:
        self.modes = modes

    def __enter__(self) -> None:
        for mode in self.modes:
            mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*error)


def seen_by(run: Callable[..., Any]) -> list[tuple]:
    """Return the modes that each iteration's step sees, and properties of an operation's result."""
    seen: list[tuple] = []
    run(range(4), on_retire=lambda ctx: seen.append((*ctx.seen, ctx.value)))
    return [
        (*flags, value.dtype, value.device.type, value.requires_grad, value.is_inference()) for *flags, value in seen
    ]


def look(ctx: IterContext) -> None:
    ctx.seen = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"))
    ctx.value = torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)


@every_engine
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("error")
def test_a_run_inside_a_mode_is_the_plain_loop_inside_it(engine: Any, mode: str) -> None:
    pipe = engine(plan_of({"a": 0, "b": 1}, [("b", "a")], before={"b": look}))
    with MODES[mode]():
        serial, pipelined = seen_by(pipe.run_serial), seen_by(pipe.run)
    assert pipelined == serial and len(serial) == 4
    pipe.drain()
    assert seen_by(pipe.run) == seen_by(engine(plan_of({"a": 0, "b": 1}, [("b", "a")], before={"b": look})).run_serial)
    if mode != "usual" and mode != "grad inside no_grad":
        pipe.drain()
        assert seen_by(pipe.run) != serial


def test_usual_modes_cost_nothing() -> None:
    """Tasks get no context manager either if the only mode set cannot be transferred."""
    assert Modes.current().apply_as(Modes())
    with Foreign():
        assert Modes.current().apply_as(Modes())
    with torch.no_grad():
        assert not Modes.current().apply_as(Modes())


class Foreign(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "mode, name",
    [(Foreign, "Foreign"), (Dispatch, "Dispatch"), (torch.autograd.graph.save_on_cpu, "saved_tensors_hooks")],
    ids=["function", "dispatch", "hooks"],
)
def test_what_cannot_be_carried_over_is_warned_of_once(mode: Any, name: str) -> None:
    pipe = SWPipeline(fused_sparse_dist(), "cpu")
    with pytest.warns(RuntimeWarning, match=f"{name} apply only to the calling thread") as caught, mode():
        pipe.run(range(5))
        pipe.drain()
        pipe.run(range(5))
    assert len([w for w in caught if w.category is RuntimeWarning]) == 1


def test_a_mode_that_changes_between_filling_and_progress_is_warned_of_once() -> None:
    pipe = SWPipeline(fused_sparse_dist(), "cpu")
    with pytest.warns(
        RuntimeWarning, match=r"modes of fill_pipeline \(none\), not in those of progress \(no_grad\)"
    ) as caught:
        data = pipe.fill_pipeline(range(9))
        with torch.no_grad():
            pipe.progress(data)
            pipe.progress(data)
        pipe.progress(data)
        pipe.drain()
    assert len([w for w in caught if w.category is RuntimeWarning]) == 1
    assert "fill_pipeline" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_a_profiler_that_sees_only_its_own_thread_is_warned_of_once() -> None:
    pipe = SWPipeline(fused_sparse_dist(), "cpu")
    with (
        pytest.warns(RuntimeWarning, match="profile_all_threads=True") as caught,
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    ):
        pipe.run(range(5))
        pipe.drain()
        pipe.run(range(5))
    assert len([w for w in caught if w.category is RuntimeWarning]) == 1


@pytest.mark.filterwarnings("error")
def test_a_profiler_of_all_threads_sees_every_task() -> None:
    from torch._C._profiler import _ExperimentalConfig

    pipe = SWPipeline(fused_sparse_dist(), "cpu")
    with (
        warnings.catch_warnings(),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            experimental_config=_ExperimentalConfig(profile_all_threads=True),
        ) as profiler,
    ):
        pipe.run(range(5))
    names = {event.name for event in profiler.events()}
    assert {f"SWP/Forward/iter{i}" for i in range(5)} <= names


def openmp() -> Any:
    """The OpenMP that torch uses, which knows the number of threads of the calling thread."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    libraries = {line.split()[-1] for line in lines if re.search(r"/lib(gomp|omp|iomp5)[^/]*\.so", line)}
    if not libraries:
        pytest.skip("torch computes without OpenMP here")
    return ctypes.CDLL(min(libraries))


@pytest.mark.parametrize("groups", [{}, {"a": "io"}])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_tasks_compute_with_as_many_threads_as_the_caller(device: str, groups: dict[str, str]) -> None:
    """Without it each stream has a thread for each core. torch.get_num_threads() would set the number itself."""
    openmp_threads, before = openmp().omp_get_max_threads, torch.get_num_threads()
    seen: set[int] = set()
    note = dict.fromkeys("ab", lambda ctx: seen.add(openmp_threads()))
    plan = plan_of({"a": 0, "b": 1}, [("b", "a")], before=note, stream={"a": "side"}, thread_group=groups)
    try:
        for n_threads in (before + 1, before + 2):
            torch.set_num_threads(n_threads)
            seen.clear()
            SWPipeline(plan, device).run(range(3))
            assert seen == {n_threads}
    finally:
        torch.set_num_threads(before)
