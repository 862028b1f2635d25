"""Measurement of each task's cost in an iteration, from serial runs without the task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from pipelines.schedule.engine.shortcut import Shortcuts
from pipelines.schedule.plan.plan import TaskRef, name_of

if TYPE_CHECKING:
    from pipelines.schedule.engine.pipeline import _PipelineBase


@dataclass
class ProfileResult:
    """Duration of one serial iteration, and how much shorter it is without each task, in seconds."""

    baseline_s: float
    exposed_s: dict[str, float]

    def format_report(self) -> str:
        """Return the report as text. SUM above 100 % means that tasks overlap on the critical path."""
        width = max([24, *(len(name) for name in self.exposed_s)])
        rule = f"{'-' * width} {'-' * 10} {'-' * 12}"
        lines = [f"Baseline serial iteration: {self.baseline_s * 1e3:.3f} ms", ""]
        lines += [f"{'Task':<{width}} {'Exposed':>10} {'% baseline':>12}", rule]
        lines += [self._row(name, seconds, width) for name, seconds in self.exposed_s.items()]
        lines += [rule, self._row("SUM", sum(self.exposed_s.values()), width)]
        return "\n".join(lines)

    def _row(self, name: str, seconds: float, width: int) -> str:
        percent = seconds / self.baseline_s * 100 if self.baseline_s > 0 else 0.0
        return f"{name:<{width}} {f'{seconds * 1e3:.3f}ms':>10} {f'{percent:.1f}%':>12}"

    def print_report(self) -> None:
        """Print format_report()."""
        print(self.format_report())


class TaskProfiler:
    """Profiler that measures exposed(T) = serial iteration - serial iteration with T short-cut, never below 0.

    The profiler uses the engine's shortcuts. So the engine must not have iterations in flight, and the user's shortcuts
    are saved and restored.
    """

    def __init__(self, pipeline: _PipelineBase) -> None:
        self.pipeline = pipeline

    def profile(
        self,
        batch: Any,
        num_warmup: int = 3,
        num_measure: int = 10,
        num_rounds: int = 3,
        skip_tasks: Iterable[TaskRef] | None = None,
    ) -> ProfileResult:
        """Warm up, measure the baseline, then the iteration without each task. Return medians over `num_rounds`.

        A round is `num_measure` iterations between two synchronizations of the device. `skip_tasks` are not measured.
        Use it for tasks whose effect a replay cannot reproduce, such as a backward. Raise ValueError if a task is
        unknown or a count is below 1, RuntimeError if iterations are in flight, and PipelineError if a task fails.
        """
        if num_measure < 1 or num_rounds < 1:
            raise ValueError(f"num_measure={num_measure}, num_rounds={num_rounds}: at least 1 of each")
        pipeline = self.pipeline
        skipped = set(pipeline._known(name_of(ref) for ref in skip_tasks or ()))
        pipeline._check_not_running("profile")
        users_shortcuts, pipeline._shortcuts = pipeline._shortcuts, Shortcuts()
        try:
            baseline = self._measure(batch, num_warmup, num_measure, num_rounds)
            exposed = {}
            for name in pipeline._serial_order:
                if name not in skipped:
                    pipeline.enable_shortcut(name)
                    shortened = self._measure(
                        batch, max(1, num_warmup), num_measure, num_rounds
                    )  # the first warm-up iteration records the shortcut
                    pipeline.disable_shortcut(name)
                    exposed[name] = max(0.0, baseline - shortened)
        finally:
            pipeline._shortcuts = users_shortcuts
        return ProfileResult(baseline, exposed)

    def profile_many(
        self, batches: Iterable[Any], num_warmup: int = 3, num_measure: int = 10, num_rounds: int = 3
    ) -> list[ProfileResult]:
        """Call profile() for each batch and return the results."""
        return [self.profile(batch, num_warmup, num_measure, num_rounds) for batch in batches]

    def _measure(self, batch: Any, num_warmup: int, num_measure: int, num_rounds: int) -> float:
        """Return the median seconds of one iteration."""
        for i in range(num_warmup):
            self.pipeline.run_one_serial_iter(batch, i)
        return median(self._round(batch, num_measure) for _ in range(num_rounds)) / num_measure

    def _round(self, batch: Any, num_measure: int) -> float:
        self.pipeline._synchronize()
        start = self.pipeline.device.clock()
        for i in range(num_measure):
            self.pipeline.run_one_serial_iter(batch, i)
        self.pipeline._synchronize()
        return self.pipeline.device.clock() - start
