"""The clocked engine, which submits every task once in each period."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.schedule.engine.order import Handovers, enqueue_order
from pipelines.schedule.engine.pipeline import _END, _PipelineBase
from pipelines.schedule.measurement.profiler import ProfileResult, TaskProfiler
from pipelines.schedule.pictures.printed_tables import schedule_table, stage_analysis, stream_names
from pipelines.schedule.plan.plan import DeclaredIO, IterContext, PipelinePlan, PipelineTask, TaskRef, TaskSchedule
from pipelines.schedule.plan.validate import validate_plan

__all__ = [
    "DeclaredIO",
    "IterContext",
    "PipelinePlan",
    "PipelineTask",
    "ProfileResult",
    "SWPipeline",
    "TaskProfiler",
    "TaskRef",
    "TaskSchedule",
]


class SWPipeline(_PipelineBase):
    """Engine with a clock: progress() is one period, in which a task of stage k works on iteration period - k.

    `depth` = max(stage) + 1 iterations are in flight. On CUDA, this limits memory only if the loop waits for a result
    of each step, say in `on_retire`. `order` is the submission order within a period: "ready_first" (the document's
    pseudocode) or "stage_descending". Each stream runs its tasks in this order, whichever threads submit them. Raise
    PlanError, a ValueError, if the plan could hang.
    """

    def __init__(
        self, plan: PipelinePlan, device: Any = 0, *, order: str = "ready_first", process_group: Any = None
    ) -> None:
        checked = validate_plan(plan, clocked=True, needs_functions=True)
        self.depth = checked.depth
        self.order = order
        self._enqueue_order = enqueue_order(checked, order)
        self._stages = {name: checked.stage(name) for name in checked.schedule}
        self._handovers = Handovers(checked)
        super().__init__(plan, checked, checked.depth, device, process_group)

    def _reset_state(self) -> None:
        super()._reset_state()
        self._handovers.reset()
        self._period = 0  # the next period to submit
        self._began: dict[int, int] = {}  # period -> the iteration that started in it, if any
        self._begun_in: dict[int, int] = {}  # iteration in flight -> the period in which it started

    def _do_fill(self, data_iter: Iterator[Any]) -> None:
        for _ in range(self.depth):
            self._enqueue_period(data_iter)

    def _prepare(self, data_iter: Iterator[Any] | None) -> None:
        # In the steady state this does nothing, because the oldest iteration is submitted. After progress(None), new
        # iterations start later.
        if not self._contexts and data_iter is not None and not self._exhausted:
            self._enqueue_period(data_iter)
        oldest = self._next_retire
        while oldest in self._contexts and self._begun_in[oldest] + self.depth > self._period:
            self._enqueue_period(data_iter)

    def _do_retire(self, retired: int, data_iter: Iterator[Any] | None) -> None:
        del self._contexts[retired], self._begun_in[retired]
        self._enqueue_period(data_iter)

    def _enqueue_period(self, data_iter: Iterator[Any] | None) -> None:
        """Queue one period's tasks for all threads. Without a batch, only later stages run."""
        period = self._period
        batch = _END if data_iter is None else self._fetch(data_iter)
        if batch is not _END:
            self._began[period] = self._open_iteration(batch)
            self._begun_in[self._began[period]] = period
        self._period += 1
        begun = [(name, self._began.get(period - self._stages[name])) for name in self._enqueue_order]
        items = [(name, iter_idx) for name, iter_idx in begun if iter_idx is not None]
        for item in () if self._has_one_group else items:
            if (previous := self._handovers.follow(*item)) is not None:
                self._previous[item] = previous
        self._enqueue_all(items)
        self._began.pop(period - self.depth, None)

    def _order(self) -> list[tuple[str, int]]:
        return [(name, self._stages[name]) for name in self._enqueue_order]

    def _pause(self) -> int:
        return self._period - self._begun_in.get(self._next_iter - 1, -self.depth)

    def format_schedule(self, num_iterations: int = 3) -> str:
        """Return, as text, the iteration of each task in the first `num_iterations` periods.

        Rows are in submission order. `iN` = iteration N, `--` = the task's first iteration comes in a later period, `.`
        = the task's shortcut is enabled. The document mixes up the last two and prints one table in stage-descending
        order.
        """
        streams = stream_names(self._streams, self.device.stream_name)
        return schedule_table(self.checked, self._enqueue_order, streams, self._shortcuts.enabled, num_iterations)

    def print_schedule(self, num_iterations: int = 3) -> None:
        """Print format_schedule()."""
        print(self.format_schedule(num_iterations))

    def print_stage_analysis(self) -> None:
        """Print stages in topological order, and whether the depth is minimal."""
        print(stage_analysis(self.checked))

    def __repr__(self) -> str:
        return f"{self._described(f'depth={self.depth}')}\n\n{self.format_schedule(self.depth)}"
