"""Measures how much of an iteration each task costs, by running it serially without that task (SWP-49 to SWP-52)."""

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
    """Seconds of one serial iteration, and how many of them disappear without each task (SWP-7)."""

    baseline_s: float
    exposed_s: dict[str, float]

    def format_report(self) -> str:
        """Returns the report as text. SUM above 100 % means that tasks overlap on the critical path."""
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
        """Print format_report() (SWP-51)."""
        print(self.format_report())


class TaskProfiler:
    """Measures exposed(T) = serial iteration - serial iteration with T short-cut, never below 0 (SWP-52).

    Uses the engine's shortcuts to measure: the engine must not be in flight, and its own shortcuts are saved and
    restored.
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
        """Warm up, measure the baseline, then each task without it; returns medians over `num_rounds`.

        A round is `num_measure` iterations between two synchronizations of the device. `skip_tasks` are not measured:
        tasks whose effect a replay cannot stand in for, such as a backward. Raises ValueError for an unknown task or
        counts below 1, RuntimeError when the engine is in flight, PipelineError when a task fails.
        """
        if num_measure < 1 or num_rounds < 1:
            raise ValueError(f"num_measure={num_measure}, num_rounds={num_rounds}: at least 1 of each")
        pipe = self.pipeline
        left_out = set(pipe._known(name_of(ref) for ref in skip_tasks or ()))
        pipe._check_not_running("profile")
        users, pipe._shortcuts = pipe._shortcuts, Shortcuts()
        try:
            baseline = self._measure(batch, num_warmup, num_measure, num_rounds)
            exposed = {}
            for name in pipe._serial_order:
                if name not in left_out:
                    pipe.enable_shortcut(name)
                    without = self._measure(batch, max(1, num_warmup), num_measure, num_rounds)  # the first one records
                    pipe.disable_shortcut(name)
                    exposed[name] = max(0.0, baseline - without)
        finally:
            pipe._shortcuts = users
        return ProfileResult(baseline, exposed)

    def profile_many(
        self, batches: Iterable[Any], num_warmup: int = 3, num_measure: int = 10, num_rounds: int = 3
    ) -> list[ProfileResult]:
        """Calls profile() for each batch (SWP-50)."""
        return [self.profile(batch, num_warmup, num_measure, num_rounds) for batch in batches]

    def _measure(self, batch: Any, num_warmup: int, num_measure: int, num_rounds: int) -> float:
        """Returns the median seconds of one iteration."""
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
