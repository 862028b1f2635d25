"""Random failures: an engine ends its threads, breaks no order, and works again or refuses to (SWP-39, SWP-45)."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need torch")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.schedule import DataFlowPipeline, PipelineError, SWPipeline
from pipelines.schedule.devices.cpu import CpuDevice
from pipelines.schedule.simulation.simulated import SimulatedDevice
from tests.effort import examples
from tests.schedule.plans import eventually, own_threads
from tests.schedule.random_plans import Drawn, draw_plan

WHERE = ("data", "task", "launch", "record", "on_retire", "abort", "drain", "loop", "nowhere")


class Fault(Exception):
    """An error that is raised on purpose."""


class FaultyMixin:
    """A device whose `launch` or `record` raises at one call, as CUDA does after a failed kernel."""

    fault: tuple[str, int] = ("", 0)

    def arm(self, what: str, call: int) -> None:
        self.fault, self.calls = (what, call), {"launch": count(), "record": count()}

    def _called(self, what: str) -> None:
        if what == self.fault[0] and next(self.calls[what]) == self.fault[1]:
            raise Fault(what)

    def launch(self, *args: Any) -> None:
        self._called("launch")
        super().launch(*args)  # type: ignore[misc]

    def record(self, *args: Any) -> None:
        self._called("record")
        super().record(*args)  # type: ignore[misc]


class FaultyCpu(FaultyMixin, CpuDevice):
    pass


class FaultySimulated(FaultyMixin, SimulatedDevice):
    pass


def engine_of(data: st.DataObject, drawn: Drawn) -> Any:
    device = data.draw(st.sampled_from([FaultyCpu, FaultySimulated]))()
    depth = data.draw(st.integers(0, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if depth:
            order = data.draw(st.sampled_from(["stages", "dependencies"]))
            pipe: Any = DataFlowPipeline(drawn.plan, depth, device, order=order)
        else:
            pipe = SWPipeline(drawn.plan, device, order=data.draw(st.sampled_from(["ready_first", "stage_descending"])))
    pipe.signal_timeout_s = pipe.progress_timeout_s = 20.0
    return pipe


def batches(n: int, fails: bool) -> Iterator[int]:
    yield from range(n)
    if fails:
        raise Fault("data")


def kept(drawn: Drawn) -> None:
    """Assert that no task ran twice, and none before its dependencies."""
    diary = drawn.diary
    assert not diary.wrong
    for task, dep in drawn.intra:
        for i in (i for name, i in diary.began if name == task):
            assert diary.ended[dep, i] < diary.began[task, i]
    for task, dep in drawn.inter:
        for i in (i for name, i in diary.began if name == task and i > 0):
            assert diary.ended[dep, i - 1] < diary.began[task, i]


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data(), n=st.integers(1, 6), at=st.integers(0, 6), where=st.sampled_from(WHERE), seed=st.integers(0, 99))
def test_a_failure_anywhere_leaves_an_engine_that_works(
    data: st.DataObject, n: int, at: int, where: str, seed: int
) -> None:
    drawn = draw_plan(data, n)
    rng = random.Random(seed)
    failing = rng.choice(sorted(drawn.stages))
    armed = True

    def watched(name: str, fn: Any) -> Any:
        def run(ctx: Any) -> None:
            if armed and where == "task" and name == failing and ctx.iter_idx == at:
                raise Fault("task")
            fn(ctx)

        return run

    for task in drawn.plan.schedule:
        task.fn = watched(task.name, task.fn)  # type: ignore[union-attr]
    pipe, retired = engine_of(data, drawn), []

    def retire(ctx: Any) -> None:
        assert all(getattr(ctx, f"did_{name}") == (name, ctx.iter_idx, ctx.batch) for name in drawn.stages)
        retired.append(ctx.iter_idx)
        if armed and where == "on_retire" and ctx.iter_idx == at:
            raise Fault("on_retire")

    pipe.device.arm(where, rng.randrange(1 + 3 * n))
    total, error = 7, None
    try:
        with pipe:
            source = pipe.fill_pipeline(batches(at if where == "data" else total, where == "data"), retire)
            for step in count():
                if step == at and where in ("abort", "drain"):
                    getattr(pipe, where)()
                    break
                if step == at and where == "loop":
                    raise Fault("loop")
                pipe.progress(source)
    except (StopIteration, Fault, PipelineError) as raised:
        error = raised
    assert own_threads() == []
    kept(drawn)
    assert retired == list(range(len(retired)))
    if where == "data":
        assert isinstance(error, PipelineError) and retired == list(range(at))  # iterations that began were finished
    elif where == "task" and at < total:
        assert isinstance(error, PipelineError) and (error.task, error.iteration) == (failing, at)
        assert len(retired) <= at
    elif where in ("on_retire", "loop"):
        assert isinstance(error, Fault) == (at < total)
    elif where == "nowhere":
        assert retired == list(range(total)) and isinstance(error, StopIteration)
    armed = False
    pipe.device.arm("", 0)
    drawn.diary.__init__()
    retired.clear()
    pipe.run(range(4), on_retire=retire)
    assert retired == [0, 1, 2, 3]
    drawn.diary.check(drawn.stages, 4, drawn.intra, drawn.inter)
    assert own_threads() == []


@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data(), n=st.integers(1, 5), turns=st.integers(0, 12))
def test_what_is_dropped_at_any_moment_leaves_no_thread(data: st.DataObject, n: int, turns: int) -> None:
    """The test calls neither drain() nor abort(), but only drops the engine.

    No reference cycle contains the engine, so its threads end without the garbage collector.
    """
    drawn = draw_plan(data, n)
    pipe = engine_of(data, drawn)
    source = pipe.fill_pipeline(range(9))
    for _ in range(turns):
        try:
            pipe.progress(source)
        except StopIteration:
            break
    del pipe
    assert eventually(lambda: own_threads() == [])
    kept(drawn)
