"""The data-flow engine: a task is submitted as soon as what it needs is (SWP-54 to SWP-58)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import RLock
from typing import Any

from pipelines.schedule.base import _END, _PipelineBase
from pipelines.schedule.lanes import ORDERS, Item, Periods, lane_order, lanes_of
from pipelines.schedule.plan import PipelinePlan
from pipelines.schedule.validate import validate_plan


class DataFlowPipeline(_PipelineBase):
    """Runs a plan without clock: a task begins when what it needs is there, in at most `max_depth` iterations at a time.

    A task is "done" when it is submitted (event recorded), not when the device has run it. `max_depth` limits memory and
    is the back-pressure: an iteration leaves only when progress() returns it, and only then a new one begins. So a task
    is in flight (`pending`) from its submission to that return, however early it was done (trap T10).
    `max_depth=1` runs one iteration after the other, with overlap only inside it; the document's "degenerates to
    synchronous" (trap T8) is not so for plans of more than one stage.

    `order`: what is kept beside the dependencies.

    - "stages": the order of tasks on each stream, which is SWPipeline's (lanes.py). Stages say nothing else here: a
      stream waits for no other one but by a dependency. So what tasks of one stream share, as the weights, is used in
      the order in which the clock would; the document's FusedSparseDist plan trains as it does there.
    - "dependencies": nothing. A task overtakes another of its stream where no dependency forbids it; that plan then
      trains on wrong gradients with max_depth > 1, for ZeroGrad(i+1) is submitted before OptimizerStep(i). Tasks that
      declare the state they share (`shared_reads`, `shared_writes`) get a PlanWarning that names what is missing.

    Why it cannot hang: a task that a thread has taken waits for nothing but its turn among the globally ordered tasks,
    and those are given to the threads in that very order. So the first of them that is not submitted is always at work,
    and of the oldest iteration there is always a task that can be given to a thread: the plan has no cycle, and the
    order of the lanes agrees with it (`lane_order`).
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
        self._downstream_intra = _followers(checked.intra)
        self._downstream_inter = _followers(checked.inter)
        self._lane_stages = lane_order(checked, max_depth, order)
        super().__init__(plan, checked, max_depth, device, process_group)

    def _reset_state(self) -> None:
        super()._reset_state()
        self._fired: set[Item] = set()
        self._task_done: set[Item] = set()
        self._task_pending = dict.fromkeys(self._tasks, 0)  # fired, and not retired
        self._periods = Periods()
        self._lanes = lanes_of(self.checked, self._lane_stages, self.order)
        self._numbers: dict[Item, int] = {}  # of ordered tasks
        self._next_number = 0
        self._held_back = False  # a full buffer held a task back since the last sweep

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
            self._periods.end(retired)
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
        while not self._exhausted and len(self._contexts) < self.max_depth:
            batch = self._fetch(data_iter)
            if batch is _END:
                if self._contexts:
                    self._let_pass(self._next_iter - 1)
                return
            with self._fire_lock:
                iter_idx = self._open_iteration(batch)
                self._periods.begin(iter_idx)
                self._fire((name, iter_idx) for name in self._serial_order)

    def _let_pass(self, iter_idx: int) -> None:
        """No iteration begins while a clock would be at work on this one: nothing in a lane waits for such any more."""
        with self._fire_lock:
            self._periods.let_pass(iter_idx, self.max_depth)
            self._sweep_fire()

    def _sweep_fire(self) -> None:
        """Try again what a full buffer, or a lane, held back."""
        with self._fire_lock:
            self._held_back = False
            self._fire((name, i) for i in sorted(self._contexts) for name in self._serial_order)

    def _fire(self, candidates: Iterable[Item]) -> None:
        """Fire what can be of these, and of what comes next in their lanes; needs `_fire_lock`."""
        todo = list(candidates)
        for item in todo:  # which grows
            if self._try_fire_task(*item):
                for lane in self._lanes[item[0]]:
                    if lane.one_thread and (following := lane.next(self._periods)) is not None:
                        todo.append(following)

    def _try_fire_task(self, task_name: str, iter_idx: int) -> bool:
        """Give the task to its thread if it may run; needs `_fire_lock`. The document's five conditions (SWP-55), and: it
        comes next in its lanes. For globally ordered tasks that is what keeps two of one thread from waiting for each
        other's turn."""
        item = (task_name, iter_idx)
        if iter_idx not in self._contexts or item in self._fired:
            return False
        lanes, periods = self._lanes[task_name], self._periods
        for lane in lanes:
            if lane.next(periods) != item:
                return False
        if self._task_pending[task_name] >= self.max_depth:
            self._held_back = True
            return False
        done, step = self._task_done, self._steps[task_name]
        for dep in step.intra:
            if (dep, iter_idx) not in done:
                return False
        for dep in step.inter if iter_idx else ():
            if (dep, iter_idx - 1) not in done:
                return False
        self._fired.add(item)
        self._task_pending[task_name] += 1
        if step.ordered:
            self._numbers[item] = self._next_number
            self._next_number += 1
        for lane in lanes:
            if lane.one_thread:
                lane.advance()
        self._work_queues[task_name].put((iter_idx, task_name))
        return True

    def _after_task_complete(self, name: str, iter_idx: int) -> None:
        with self._fire_lock:
            self._task_done.add((name, iter_idx))
            ready = [(follower, iter_idx) for follower in self._downstream_intra[name]]
            ready += [(follower, iter_idx + 1) for follower in self._downstream_inter[name]]
            for lane in self._lanes[name]:
                if not lane.one_thread:
                    lane.advance()
                    if (following := lane.next(self._periods)) is not None:
                        ready.append(following)
            self._fire(ready)

    def _order(self) -> list[tuple[str, int]]:
        return list(self._lane_stages.items())

    def _sequence_number(self, name: str, iter_idx: int) -> int:
        return self._numbers.pop((name, iter_idx))

    def __repr__(self) -> str:
        head = f"DataFlowPipeline(device={self.device.name}, max_depth={self.max_depth}, tasks={list(self._tasks)}"
        return f"{head}, shortcuts={sorted(self._shortcuts.enabled)})"


def _followers(deps: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in deps}
    for name, needed in deps.items():
        for dep in needed:
            found[dep].append(name)
    return found
