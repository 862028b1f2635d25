"""The data-flow engine: a task is submitted as soon as what it needs is (SWP-54 to SWP-58)."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock
from typing import Any

from pipelines.schedule.base import _END, _PipelineBase
from pipelines.schedule.plan import PipelinePlan
from pipelines.schedule.validate import validate_plan


class DataFlowPipeline(_PipelineBase):
    """Runs a plan without clock: stages are ignored, at most `max_depth` iterations are in flight.

    A task is "done" when it is submitted (event recorded), not when the device has run it. `max_depth` limits memory and
    is the back-pressure: an iteration leaves only when progress() returns it, and only then a new one begins. So a task
    is in flight (`pending`) from its submission to that return, however early it was done (trap T10).
    `max_depth=1` runs one iteration after the other, with overlap only inside it; the document's "degenerates to
    synchronous" (trap T8) is not so for plans of more than one stage.

    Stages also say what comes first on a stream, and that is ignored with them. The document's FusedSparseDist plan, run
    here with max_depth > 1, trains on wrong gradients: ZeroGrad(i+1) is submitted before OptimizerStep(i). What the clock
    only implied must be a dependency: (ZeroGrad, OptimizerStep) in inter_iter_deps, which costs SWPipeline nothing. Tasks
    that declare the state they share (`shared_reads`, `shared_writes`) get a PlanWarning that names what is missing.

    Why it cannot hang: a task that a thread has taken waits for nothing but its turn among the globally ordered tasks,
    and those are given to the threads in that very order. So the first of them that is not submitted is always at work,
    and of the oldest iteration there is always a task that can be given to a thread, since the plan has no cycle.
    """

    def __init__(self, plan: PipelinePlan, max_depth: int, device: Any = 0, *, process_group: Any = None) -> None:
        if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < 1:
            raise ValueError(f"max_depth={max_depth!r}: a whole number from 1, the iterations that may be in flight")
        checked = validate_plan(plan, clocked=False, needs_functions=True, max_depth=max_depth)
        self.max_depth = max_depth
        self._fire_lock = RLock()
        self._downstream_intra = _followers(checked.intra)
        self._downstream_inter = _followers(checked.inter)
        super().__init__(plan, checked, max_depth, device, process_group)
        self._place = {name: i for i, name in enumerate(self._ordered)}

    def _reset_state(self) -> None:
        super()._reset_state()
        self._fired: set[tuple[str, int]] = set()
        self._task_done: set[tuple[str, int]] = set()
        self._task_pending = dict.fromkeys(self._tasks, 0)  # fired, and not retired
        self._ordered_fired = 0
        self._held_back = False  # a full buffer held a task back since the last sweep

    def _do_fill(self, data_iter: Iterator[Any]) -> None:
        self._try_advance(data_iter)

    def _prepare(self, data_iter: Iterator[Any] | None) -> None:
        if not self._contexts and data_iter is not None:
            self._try_advance(data_iter)

    def _do_retire(self, retired: int, data_iter: Iterator[Any] | None) -> None:
        with self._fire_lock:
            del self._contexts[retired]
            for name in self._tasks:
                self._task_pending[name] -= 1
                self._fired.discard((name, retired))
                self._task_done.discard((name, retired - 1))  # the next iteration may still ask for `retired`
        if data_iter is not None:
            self._try_advance(data_iter)
        if self._held_back:  # what anything else held back is tried again when that is done
            self._sweep_fire()

    def _try_advance(self, data_iter: Iterator[Any]) -> None:
        """Begin iterations until `max_depth` are in flight; of each, fire at once what can be (the burst)."""
        while len(self._contexts) < self.max_depth:
            batch = self._fetch(data_iter)
            if batch is _END:
                return
            with self._fire_lock:
                iter_idx = self._open_iteration(batch)
                for name in self._serial_order:
                    self._try_fire_task(name, iter_idx)

    def _sweep_fire(self) -> None:
        """Try again what a full buffer held back."""
        with self._fire_lock:
            self._held_back = False
            for iter_idx in sorted(self._contexts):
                for name in self._serial_order:
                    self._try_fire_task(name, iter_idx)

    def _try_fire_task(self, task_name: str, iter_idx: int) -> bool:
        """Give the task to its thread if it may run; needs `_fire_lock`. The document's five conditions (SWP-55), and:
        globally ordered tasks are fired in their order, else two of one thread could wait for each other's turn."""
        if (task_name, iter_idx) in self._fired or iter_idx not in self._contexts:
            return False
        if self._task_pending[task_name] >= self.max_depth:
            self._held_back = True
            return False
        done = self._task_done
        for dep in self._steps[task_name].intra:
            if (dep, iter_idx) not in done:
                return False
        for dep in self._steps[task_name].inter if iter_idx else ():
            if (dep, iter_idx - 1) not in done:
                return False
        ordered = task_name in self._place
        if ordered and self._sequence_number(task_name, iter_idx) != self._ordered_fired:
            return False
        self._fired.add((task_name, iter_idx))
        self._task_pending[task_name] += 1
        self._work_queues[task_name].put((iter_idx, task_name))
        if ordered:
            self._ordered_fired += 1
            self._try_fire_task(*self._ordered_at(self._ordered_fired))
        return True

    def _after_task_complete(self, name: str, iter_idx: int) -> None:
        with self._fire_lock:
            self._task_done.add((name, iter_idx))
            for follower in self._downstream_intra[name]:
                self._try_fire_task(follower, iter_idx)
            for follower in self._downstream_inter[name]:
                self._try_fire_task(follower, iter_idx + 1)

    def _sequence_number(self, name: str, iter_idx: int) -> int:
        """Iteration after iteration, each in topological order: the same on every rank."""
        return iter_idx * len(self._ordered) + self._place[name]

    def _ordered_at(self, number: int) -> tuple[str, int]:
        return self._ordered[number % len(self._ordered)], number // len(self._ordered)

    def __repr__(self) -> str:
        head = f"DataFlowPipeline(device={self.device.name}, max_depth={self.max_depth}, tasks={list(self._tasks)}"
        return f"{head}, shortcuts={sorted(self._shortcuts.enabled)})"


def _followers(deps: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in deps}
    for name, needed in deps.items():
        for dep in needed:
            found[dep].append(name)
    return found
