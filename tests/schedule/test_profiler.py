"""TaskProfiler and its report, SWP-7 and SWP-49 to SWP-52."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need torch")

import pipelines.schedule.measurement.profiler as profiler_module
from pipelines.schedule import (
    IterContext,
    PipelinePlan,
    PipelineTask,
    ProfileResult,
    SWPipeline,
    TaskProfiler,
    TaskSchedule,
)
from pipelines.schedule.devices.cpu import CpuDevice
from pipelines.schedule.engine.shortcut import Shortcuts

MS = 1e-3


class ToldTime(CpuDevice):
    """A clock that moves only when a task advances it, which simulates a slow machine exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.synchronized = 0

    def clock(self) -> float:
        return self.now

    def synchronize(self, streams: Any = ()) -> None:
        self.synchronized += 1
        super().synchronize(streams)


COST = {"CopyBatch": 1.0, "EmbLookup": 4.0, "Forward": 2.5, "LossBackward": 0.5}


def pipeline() -> tuple[SWPipeline, ToldTime]:
    device = ToldTime()

    def spending(name: str) -> PipelineTask:
        def fn(ctx: IterContext) -> None:
            device.now += COST[name] * MS

        return PipelineTask(name, fn)

    schedule = {spending(name): TaskSchedule() for name in COST}
    names = list(COST)
    return SWPipeline(PipelinePlan(schedule, list(zip(names[1:], names, strict=False))), device), device


def test_swp_49_52_exposed_is_the_baseline_without_the_task() -> None:
    pipe, _ = pipeline()
    result = TaskProfiler(pipe).profile("batch")
    assert result.baseline_s == pytest.approx(8 * MS)
    assert list(result.exposed_s) == list(COST)
    assert result.exposed_s == pytest.approx({name: ms * MS for name, ms in COST.items()})


def test_swp_49_exposed_is_never_negative() -> None:
    pipe, device = pipeline()

    class Slow(Shortcuts):
        def replay(self, task: Any, ctx: Any) -> None:
            device.now += 100 * MS
            super().replay(task, ctx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiler_module, "Shortcuts", Slow)
        result = TaskProfiler(pipe).profile("batch", num_rounds=1)
    assert set(result.exposed_s.values()) == {0.0}


def test_swp_49_two_synchronizations_a_round_and_no_more() -> None:
    pipe, device = pipeline()
    TaskProfiler(pipe).profile("batch", num_warmup=2, num_measure=7, num_rounds=3)
    assert device.synchronized == 2 * 3 * (1 + len(COST))


def test_swp_49_skipped_tasks_are_left_out_and_unknown_ones_refused() -> None:
    pipe, _ = pipeline()
    result = TaskProfiler(pipe).profile("batch", num_rounds=1, skip_tasks={"LossBackward"})
    assert list(result.exposed_s) == ["CopyBatch", "EmbLookup", "Forward"]
    with pytest.raises(ValueError, match="nobody"):
        TaskProfiler(pipe).profile("batch", skip_tasks={"nobody"})
    with pytest.raises(ValueError, match="num_measure"):
        TaskProfiler(pipe).profile("batch", num_measure=0)


def test_swp_49_50_documented_defaults() -> None:
    once = {n: p.default for n, p in inspect.signature(TaskProfiler.profile).parameters.items()}
    assert (once["num_warmup"], once["num_measure"], once["num_rounds"], once["skip_tasks"]) == (3, 10, 3, None)
    many = {n: p.default for n, p in inspect.signature(TaskProfiler.profile_many).parameters.items()}
    assert (many["num_warmup"], many["num_measure"], many["num_rounds"]) == (3, 10, 3)


def test_swp_49_the_median_round_counts() -> None:
    pipe, device = pipeline()
    disturbed = iter([0, 50 * MS, 0])
    original = pipe._synchronize
    calls = []

    def synchronize() -> None:
        calls.append(1)
        if len(calls) % 2 == 0 and len(calls) <= 6:
            device.now += next(disturbed)
        original()

    pipe._synchronize = synchronize  # type: ignore[method-assign]
    assert TaskProfiler(pipe).profile("batch", num_measure=1).baseline_s == pytest.approx(8 * MS)


def test_swp_50_profile_many_is_one_result_a_batch() -> None:
    pipe, _ = pipeline()
    results = TaskProfiler(pipe).profile_many(["a", "b"], num_rounds=1)
    assert [r.baseline_s for r in results] == pytest.approx([8 * MS, 8 * MS])


def test_the_users_shortcuts_are_put_back_and_nothing_in_flight_is_touched() -> None:
    pipe, _ = pipeline()
    pipe.enable_shortcut("Forward")
    pipe.run_one_serial_iter("batch")
    result = TaskProfiler(pipe).profile("batch", num_rounds=1)
    assert result.exposed_s["Forward"] == pytest.approx(2.5 * MS)
    assert pipe._shortcuts.enabled == {"Forward"}
    assert "Forward" in pipe._shortcuts._recorded
    pipe.fill_pipeline(range(3))
    with pytest.raises(RuntimeError, match="drain"):
        TaskProfiler(pipe).profile("batch")
    pipe.drain()


def test_a_slowed_task_is_ranked_first_on_cpu() -> None:
    """Times are real, but only their order counts. One task does work, the others nothing."""

    def work(ctx: IterContext) -> None:
        sum(range(200_000))

    tasks = {n: PipelineTask(n, work if n == "slow" else lambda ctx: None) for n in ("a", "slow", "z")}
    plan = PipelinePlan({t: TaskSchedule() for t in tasks.values()}, [("slow", "a"), ("z", "slow")])
    result = TaskProfiler(SWPipeline(plan, "cpu")).profile("batch", num_warmup=1, num_measure=3)
    assert max(result.exposed_s, key=lambda n: result.exposed_s[n]) == "slow"


def test_swp_7_result_fields() -> None:
    assert [f.name for f in dataclasses.fields(ProfileResult)] == ["baseline_s", "exposed_s"]


def test_swp_51_the_printed_report(capsys: Any) -> None:
    ProfileResult(8.503 * MS, {"CopyBatch": 0.521 * MS, "EmbLookup": 1.234 * MS, "Forward": 5.816 * MS}).print_report()
    assert capsys.readouterr().out == (
        "Baseline serial iteration: 8.503 ms\n"
        "\n"
        "Task                        Exposed   % baseline\n"
        "------------------------ ---------- ------------\n"
        "CopyBatch                   0.521ms         6.1%\n"
        "EmbLookup                   1.234ms        14.5%\n"
        "Forward                     5.816ms        68.4%\n"
        "------------------------ ---------- ------------\n"
        "SUM                         7.571ms        89.0%\n"
    )


def test_swp_51_a_baseline_of_zero_prints() -> None:
    assert "0.0%" in ProfileResult(0.0, {"a": 0.0}).format_report()
