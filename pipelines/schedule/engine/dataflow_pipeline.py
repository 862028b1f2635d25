"""The data-flow engine, which submits a task as soon as its dependencies are submitted."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock
from typing import Any

from pipelines.schedule.engine.firing import InOrder, firing_of
from pipelines.schedule.engine.lanes import ORDERS
from pipelines.schedule.engine.pipeline import _END, _PipelineBase
from pipelines.schedule.plan.plan import PipelinePlan
from pipelines.schedule.plan.validate import validate_plan


class DataFlowPipeline(_PipelineBase):
    """Engine without a clock: a task starts when its inputs are ready, with at most `max_depth` iterations in flight.

    A task is "done" when it is submitted (its event is recorded), not when the device has run it. `max_depth` provides
    the back-pressure. An iteration leaves only when progress() returns it, and only then a new iteration starts. So a
    task counts as in flight (`pending`) from its submission until progress() returns its iteration, however early it
    was done. On CUDA, this limits memory only if the loop waits for a result of each step, say in `on_retire`.
    `max_depth=1` runs one iteration after the other, with overlap only inside an iteration. The document's claim that
    this "degenerates to synchronous" is wrong for plans of more than one stage.

    `order`: the order that is kept in addition to the dependencies.

    - "stages": the order of tasks on each stream is SWPipeline's (lanes.py). Stages have no other effect, because a
      stream waits for another stream only for a dependency. So state that tasks of one stream share, such as the
      weights, is used in the clock's order, and the document's FusedSparseDist plan trains the same as under
      SWPipeline.
    - "dependencies": no further order. A task overtakes another task on its stream unless a dependency forbids it. With
      max_depth > 1, the FusedSparseDist plan then trains on wrong gradients, because ZeroGrad(i+1) is submitted before
      OptimizerStep(i). Tasks that declare their shared state (`shared_reads`, `shared_writes`) get a PlanWarning that
      names the missing dependency.

    The engine cannot hang. A task in a thread waits only for its turn among the globally ordered tasks, and the threads
    get those tasks in the same order. So the first globally ordered task that is not submitted is always running. The
    oldest iteration always has a task that can be given to a thread, because the plan has no cycle and the order of the
    lanes is compatible with the plan (`lanes.lane_order`).
    """

    def __init__(
        self,
        plan: PipelinePlan,
        max_depth: int,
        device: Any = 0,
        *,
        order: str = "stages",
        process_group: Any = None,
    ) -> None:
        if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < 1:
            raise ValueError(
                f"max_depth={max_depth!r}: give a whole number from 1, how many iterations may be in flight"
            )
        if order not in ORDERS:
            raise ValueError(f"order={order!r}: use one of {', '.join(map(repr, ORDERS))}")
        checked = validate_plan(plan, clocked=False, needs_functions=True, max_depth=max_depth, order=order)
        self.max_depth = max_depth
        self.order = order
        self._fire_lock = RLock()
        self._firing = firing_of(checked, max_depth, order)
        self._is_in_order = isinstance(self._firing, InOrder)
        super().__init__(plan, checked, max_depth, device, process_group)

    def _reset_state(self) -> None:
        super()._reset_state()
        self._firing.reset()

    def _do_fill(self, data_iter: Iterator[Any]) -> None:
        self._try_advance(data_iter)

    def _prepare(self, data_iter: Iterator[Any] | None) -> None:
        if data_iter is not None:
            self._try_advance(data_iter)
        elif self._next_retire in self._contexts:
            self._let_pass(self._next_retire)

    def _do_retire(self, retired: int, data_iter: Iterator[Any] | None) -> None:
        with self._fire_lock:
            del self._contexts[retired]
            self._firing.retire(retired)
        if data_iter is not None:
            self._try_advance(data_iter)
        # Only the in-flight limit sets `held_back`. Tasks that wait for a dependency or a lane are retried later.
        if self._firing.held_back:
            self._sweep_fire()

    def _try_advance(self, data_iter: Iterator[Any]) -> None:
        """Start iterations until `max_depth` are in flight. Fire all their tasks that can run (the burst)."""
        while not self._exhausted and len(self._contexts) < self.max_depth:
            batch = self._fetch(data_iter)
            if batch is _END:
                if self._contexts:
                    self._let_pass(self._next_iter - 1)
                return
            with self._fire_lock:
                iter_idx = self._open_iteration(batch)
                self._enqueue_all(self._firing.begin(iter_idx))

    def _let_pass(self, iter_idx: int) -> None:
        with self._fire_lock:
            self._enqueue_all(self._firing.let_pass(iter_idx))

    def _sweep_fire(self) -> None:
        with self._fire_lock:
            self._enqueue_all(self._firing.sweep())

    def _after_task_complete(self, name: str, iter_idx: int) -> None:
        if self._is_in_order:
            return
        with self._fire_lock:
            self._enqueue_all(self._firing.submitted(name, iter_idx))

    @property
    def _keeps_order_on_streams(self) -> bool:
        return self.order == "stages"

    def _order(self) -> list[tuple[str, int]]:
        return list(self._firing.stages.items())

    def _pause(self) -> int:
        return self._firing.pause(self._next_iter)

    def __repr__(self) -> str:
        return self._described(f"max_depth={self.max_depth}")
