"""Submission: wait for a task's dependencies, launch the task and release the tasks that wait for it.

Each thread group has a thread that submits its tasks. If a plan has only one group, the caller's thread submits them,
so no task is handed over.
"""

from __future__ import annotations

import weakref
from abc import ABC
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Any
from weakref import ReferenceType

from pipelines.schedule.devices import Work
from pipelines.schedule.devices.threads import computing_thread
from pipelines.schedule.engine.batches import _Batches
from pipelines.schedule.engine.lanes import Item
from pipelines.schedule.engine.slots import Slot
from pipelines.schedule.engine.state import ABANDONED, _Run
from pipelines.schedule.engine.stopping import _task_failed
from pipelines.schedule.errors import PipelineTimeout
from pipelines.schedule.plan.checked_plan import ancestors
from pipelines.schedule.plan.plan import IterContext, PipelineTask


class _Submitting(_Batches, ABC):
    """Part of an engine that submits the tasks of each thread group first-in-first-out."""

    def _after_task_complete(self, name: str, iter_idx: int) -> None:
        """Handle the submission of a task, whose work may not be done. The submitting thread calls this hook."""

    def _start_workers(self) -> None:
        groups = dict.fromkeys(s.thread_group for s in self.checked.schedule.values())
        self._queues.clear()
        self._callers_queue.clear()
        if self._tasks_run_in_caller:
            groups = {}
        self._queues.update({group: SimpleQueue() for group in groups})
        if not self._has_one_group:
            self._work_queues = {n: self._queues[s.thread_group] for n, s in self.checked.schedule.items()}
        open_thread = partial(self.device.open_thread, self._emit_nvtx)
        close_streams = partial(self.device.close, self._used_streams(), self.join_timeout_s)
        refs = weakref.ref(self), weakref.ref(self._run)
        self._threads = [
            computing_thread(f"pipeline {g}", _serve, (*refs, self._queues[g], open_thread, close_streams))
            for g in groups
        ]
        for thread in self._threads:
            thread.start()

    def _enqueue(self, name: str, iter_idx: int) -> None:
        """Give one task to the thread of its group."""
        self._enqueue_all([(name, iter_idx)])

    def _enqueue_all(self, items: Iterable[Item]) -> None:
        """Give tasks to the threads of their groups. A globally ordered task gets the next number of the global order.

        All tasks are queued before the caller submits the first. Submitting a task may enqueue further tasks, which
        must come later.
        """
        if self._has_one_group:
            self._callers_queue.extend(items)
            if not self._is_submitting:
                self._submit_queued()
            return
        for name, iter_idx in items:
            if self._steps[name].ordered:
                self._numbers[name, iter_idx] = self._next_number
                self._next_number += 1
            self._work_queues[name].put((iter_idx, name))

    def _submit_queued(self) -> None:
        """Submit the tasks in the caller's queue, including tasks that are queued during the submission.

        An interruption (KeyboardInterrupt, SystemExit) in the caller's thread stops the engine and is raised.
        """
        run, queue, name, iter_idx = self._run, self._callers_queue, None, None
        self._is_submitting = True
        try:
            while queue:
                name, iter_idx = queue.popleft()
                if run.failure is None:
                    self._submit_task(run, iter_idx, name)
        except BaseException as error:
            self._fail(run, error, name, iter_idx)
            if not isinstance(error, Exception):
                raise
        finally:
            self._is_submitting = False

    def _submit_task(self, run: _Run, iter_idx: int, name: str) -> None:
        """Wait for the task's dependencies (in the thread and on the stream), launch it, and release its waiters."""
        step, slot, device = self._steps[name], self._slots.of(iter_idx), self.device
        stream = step.stream
        if step.intra:
            self._wait_for_all(run, name, iter_idx, step.intra, slot)
        elif slot.callers_stream is not None and slot.callers_stream != stream:
            device.wait(stream, slot.callers_event)
        if step.inter and iter_idx > 0:
            self._wait_for_all(run, name, iter_idx, step.inter, self._slots.of(iter_idx - 1))
        if self._previous and (previous := self._previous.pop((name, iter_idx), None)) is not None:
            # The previous submission still owns its slot. Its task's next iteration comes after this submission, and is
            # not retired before.
            self._wait_for_all(run, name, iter_idx, previous[:1], self._slots.of(previous[1]))
        if run.failure is not None:
            return
        ctx = self._contexts[iter_idx]
        replay = self._shortcuts.will_replay(name)
        values = vars(ctx)
        device.keep_alive(values if step.used is None else _part(values, step.used), stream)
        body = partial(self._run_task, run, step.task, ctx, replay)
        work = Work(name, iter_idx, replay)
        if step.ordered:
            self._launch_ordered(slot, stream, body, work)
        else:
            device.launch(stream, body, work)
            if step.recorded:
                device.record(slot.events[name], stream)
        if step.task.writes and not device.runs_later:
            device.made_on(stream, _part(values, step.task.writes))
        if run.failure is None:
            # Call the subclass first. Once the last signal is set, the iteration may be retired, so the bookkeeping
            # must be complete.
            self._after_task_complete(name, iter_idx)
            slot.submitted(name)

    def _wait_for_all(self, run: _Run, name: str, iter_idx: int, deps: tuple[str, ...], slot: Slot) -> None:
        step, signals = self._steps[name], slot.signals
        for dep in deps:
            signal = signals[dep]
            if not signal.is_set() and not signal.wait(self.signal_timeout_s):
                raise PipelineTimeout(
                    f"task {name!r} of iteration {iter_idx} waited {self.signal_timeout_s:g} s for {dep!r} of iteration "
                    f"{slot.iter_idx}, which {self._whereabouts(dep, slot.iter_idx)}",
                    name,
                    iter_idx,
                )
            if run.failure is not None:
                return
            if dep not in step.own_stream:
                self.device.wait(step.stream, slot.events[dep])

    def _launch_ordered(self, slot: Slot, stream: Any, body: Callable[[], None], work: Work) -> None:
        """Launch a globally ordered task in its turn. One thread that submits all tasks is always in turn."""
        if self._has_one_group:
            self._launch_in_turn(slot, stream, body, work)
            return
        launch = partial(self._launch_in_turn, slot, stream, body, work)
        try:
            self._sequencer.execute_ordered(self._numbers.pop((work.task, work.iteration)), launch)
        except PipelineTimeout as timeout:
            message = f"task {work.task!r} of iteration {work.iteration} {timeout}"
            raise PipelineTimeout(message, work.task, work.iteration) from None

    def _launch_in_turn(self, slot: Slot, stream: Any, body: Callable[[], None], work: Work) -> None:
        # On a device that runs bodies later, ordering the launches is not enough, because the collective is inside
        # the body.
        device = self.device
        if device.runs_later and self._last_ordered is not None:
            device.wait(stream, self._last_ordered)
        device.launch(stream, body, work)
        if self._steps[work.task].recorded:
            device.record(slot.events[work.task], stream)
        if device.runs_later:
            self._last_ordered = device.event()
            device.record(self._last_ordered, stream)

    def _exec_task(self, task: PipelineTask, ctx: IterContext, replay: bool) -> None:
        """Replay the task, run and record it, or only run it."""
        if replay:
            self._shortcuts.replay(task, ctx)
        elif task.name in self._shortcuts.enabled:
            self._shortcuts.record(task, ctx, self._concurrent(task.name))
        else:
            task.fn(ctx)

    @property
    def _keeps_order_on_streams(self) -> bool:
        """Return whether a stream's next task is submitted only after the previous task, also by another thread."""
        return True

    def _concurrent(self, name: str) -> list[str]:
        """Return the tasks of the same iteration that may run while the task runs.

        They run in another thread, and neither they nor the task depend on the other.
        """
        if self._state != "running":  # a serial run
            return []
        checked = self.checked
        groups = {task: s.thread_group for task, s in checked.schedule.items()}
        thread = self._streams if self.device.runs_later else groups  # the thread that runs each function
        before = ancestors(checked.intra)
        return [
            other
            for other in self._tasks
            if thread[other] != thread[name]
            and other not in before[name]
            and name not in before[other]
            and not (self._keeps_order_on_streams and checked.stream(other) == checked.stream(name))
        ]

    def _run_task(self, run: _Run, task: PipelineTask, ctx: IterContext, replay: bool) -> None:
        """Run a launched task. An exception stops the engine. After a failure, do nothing."""
        if run.failure is not None:
            return
        run.inside[task.name] = ctx.iter_idx
        try:
            if run.must_switch:
                with run.modes.around(run.thread_modes):
                    self._exec_task(task, ctx, replay)
            else:
                self._exec_task(task, ctx, replay)
        except BaseException as error:
            # A PipelineError is an error of the task, too, because it comes from an engine that the task runs.
            failure = _task_failed(error, task.name, ctx.iter_idx)
            failure.__cause__ = error
            self._fail(run, failure, task.name, ctx.iter_idx)
            if self._tasks_run_in_caller and not isinstance(error, Exception):
                raise
        del run.inside[task.name]


def _part(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values that have one of the names."""
    return {name: values[name] for name in names if name in values}


def _serve(
    engine: ReferenceType[_Submitting],
    run_ref: ReferenceType[_Run],
    queue: SimpleQueue,
    open_thread: Callable[[], Any],
    close_streams: Callable[[], Any],
) -> None:
    """Submit the tasks in a thread's queue until it contains None.

    The thread keeps no reference to the engine or its run, so that an unreferenced engine can be garbage-collected.
    Then the queue contains ABANDONED.
    """
    name, iter_idx = None, None
    try:
        with open_thread():
            while (item := queue.get()) is not None:
                pipe, run = engine(), run_ref()
                if item is ABANDONED or pipe is None:
                    close_streams()
                    return
                if run is None:  # the engine started another run while this thread was still inside a task
                    return
                iter_idx, name = item
                if run.failure is None:
                    pipe._submit_task(run, iter_idx, name)
                del pipe, run
    except BaseException as error:
        pipe, run = engine(), run_ref()
        if pipe is not None and run is not None:
            pipe._fail(run, error, name, iter_idx)
