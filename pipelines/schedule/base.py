"""What both engines share: signals, threads, errors, shortcuts, serial runs (SWP-35).

The subclasses decide when a task is submitted: `_do_fill`, `_prepare`, `_do_retire`, `_after_task_complete`.
"""

from __future__ import annotations

import difflib
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from pipelines.schedule.agree import AT_END, FAILED, HAS_BATCH, Agreement
from pipelines.schedule.devices import Work, resolve_device
from pipelines.schedule.errors import PipelineError, PipelineTimeout, PlanWarning
from pipelines.schedule.order import serial_order
from pipelines.schedule.plan import IterContext, PipelinePlan, PipelineTask, TaskRef, name_of
from pipelines.schedule.sequencer import _SubmissionSequencer
from pipelines.schedule.shortcut import Shortcuts
from pipelines.schedule.slots import Slot, Slots
from pipelines.schedule.validate import CheckedPlan

_END = object()  # what _fetch gives when there is no batch


class _Run:
    """From a fill to its end. A thread that a stop had to leave behind keeps its run, which has failed, and so can
    never disturb a later one."""

    def __init__(self) -> None:
        self.failure: PipelineError | None = None
        self.inside: dict[str, int] = {}  # task -> iteration whose function is running now


class _PipelineBase(ABC):
    """An engine for one plan. Not for use by several threads at once.

    `device`: a CUDA index or "cuda:N", "cpu", "simulated", or a device object. `process_group`: a gloo group over the
    ranks that run the same plan; by default one is made when a task is globally ordered and torch.distributed runs.

    A failure (in a task, in the data, a time-out) is raised by the call that notices it, as PipelineError with `task`
    and `iteration`; the threads have ended then, and after `drain()` the engine can be used again.
    """

    signal_timeout_s = 30.0  # how long a task waits for one it depends on (SWP-9), or for its turn (SWP-67)
    progress_timeout_s = 60.0  # how long progress() waits for the oldest iteration (SWP-39)
    join_timeout_s = 5.0  # how long a stop waits for threads that are inside a task
    _spare_slots = 1  # trap T7, see slots.py

    def __init__(
        self, plan: PipelinePlan, checked: CheckedPlan, num_slots: int, device: Any = 0, process_group: Any = None
    ) -> None:
        for warning in checked.warnings:
            warnings.warn(warning, PlanWarning, stacklevel=3)
        self.plan = plan
        self.checked = checked
        self.device = resolve_device(device)
        self.leftover: list[Any] = []  # batches taken when another rank had none
        self._tasks: dict[str, PipelineTask] = {name: checked.tasks[name] for name in checked.schedule}
        self._streams = {name: self.device.stream(s.stream) for name, s in checked.schedule.items()}
        self._sinks = _without_followers(checked)
        self._serial_order = serial_order(checked)
        self._num_slots = num_slots
        self._shortcuts = Shortcuts()
        self._make_signals()
        self._ordered = [n for n in self._serial_order if checked.schedule[n].globally_ordered]
        self._agreement = Agreement(process_group) if self._ordered else None
        self._state = "idle"  # idle | running | exhausted | failed
        self._failing = Lock()
        self._threads: list[Thread] = []
        self._emit_nvtx = False
        self._reset_state()

    # --- running

    def fill_pipeline(self, data_iter: Iterable[Any]) -> Iterator[Any]:
        """Start the threads and the first iterations; returns the iterator to give to progress() (SWP-38).

        Raises RuntimeError when the pipeline is filled already: drain() first.
        """
        if self._state in ("running", "failed"):
            raise RuntimeError("fill_pipeline was called on a pipeline that is filled: call drain() first")
        data = iter(data_iter)
        self._reset_state()
        self._start_workers()
        self._state = "running"
        with _StopOnError(self):
            self._do_fill(data)
        return data

    def progress(self, data_iter: Iterator[Any] | None = None) -> int:
        """Wait for the oldest iteration, submit what follows, return the oldest's index (SWP-39).

        None as `data_iter` takes no new batch, but what is in flight goes on. Raises StopIteration when nothing is left
        (the threads have ended then), PipelineError for a failure, RuntimeError when fill_pipeline was not called.
        """
        self._check_started()
        if data_iter is not None and not hasattr(data_iter, "__next__"):
            raise TypeError("progress() takes the iterator that fill_pipeline returned, not what it was made from")
        with _StopOnError(self):
            oldest = self._next_retire
            self._prepare(data_iter)
            if oldest not in self._contexts:
                if data_iter is not None or self._exhausted:
                    self._finish()
                raise StopIteration
            self._await_iteration(oldest)
            self._next_retire += 1
            self._do_retire(oldest, data_iter)
            return oldest

    def run(self, data_iter: Iterable[Any], verbose: bool = False, emit_nvtx: bool = False) -> float:
        """Run all of `data_iter`; returns seconds, the device's last work included (SWP-40).

        `emit_nvtx` wraps every submitting thread in torch.autograd.profiler.emit_nvtx(); it does nothing off CUDA.
        """
        self._emit_nvtx = emit_nvtx
        try:
            start = self.device.clock()
            data = self.fill_pipeline(data_iter)
            done = 0
            while True:
                try:
                    self.progress(data)
                    done += 1
                except StopIteration:
                    break
            elapsed = self.device.clock() - start
        finally:
            self._emit_nvtx = False
        if verbose:
            _print_speed(type(self).__name__, done, elapsed)
        return elapsed

    def run_serial(self, data_iter: Iterable[Any], verbose: bool = False, emit_nvtx: bool = False) -> float:
        """The same without pipeline and threads, task after task on the default stream: the baseline (SWP-41)."""
        self._check_not_running("run_serial")
        self._reset_state()
        data, done = iter(data_iter), 0
        with self.device.open_thread(emit_nvtx):
            self._synchronize()
            start = self.device.clock()
            while (batch := self._fetch(data)) is not _END:
                self.run_one_serial_iter(batch, done)
                done += 1
            self._synchronize()
            elapsed = self.device.clock() - start
        if verbose:
            _print_speed(f"{type(self).__name__} (serial)", done, elapsed)
        return elapsed

    def run_one_serial_iter(self, batch: Any, iter_idx: int = 0) -> None:
        """One iteration on the default stream, in topological order (SWP-42). Shortcuts count; nothing is in flight after.

        Does not synchronize the device.
        """
        self._check_not_running("run_one_serial_iter")
        ctx = IterContext(batch, iter_idx)
        for name in self._serial_order:
            task, replay = self._tasks[name], self._shortcuts.will_replay(name)
            try:
                self.device.run_here(
                    partial(self._exec_task, task, ctx, replay), Work(name, iter_idx, replay, "SWP_serial")
                )
            except Exception as error:
                self._shortcuts.forget_promises()
                raise _task_failed(error, name, iter_idx) from error

    def drain(self) -> None:
        """Finish what is in flight, end the threads, make the engine ready for fill_pipeline (SWP-45).

        Shortcuts and what they recorded stay. After a failure it only cleans up. A failure while draining is raised,
        and the engine is ready all the same.
        """
        try:
            while self._state == "running":
                try:
                    self.progress(None)
                except StopIteration:
                    self._finish()
            if self._state != "failed":
                self._synchronize()
        finally:
            self._stop_workers()
            self._reset_state()

    # --- shortcuts

    def enable_shortcut(self, *task_names: TaskRef) -> None:
        """Let tasks record their next run and replay it from then on (SWP-43).

        Every rank must switch the same tasks. Raises ValueError for an unknown task (then nothing is switched), and
        RuntimeError while iterations are in flight: drain() first.
        """
        names = self._known(task_names)
        self._check_not_running("enable_shortcut")
        self._shortcuts.enable(names)

    def disable_shortcut(self, *task_names: TaskRef) -> None:
        """Let tasks run again, and forget what they recorded (SWP-44). Raises as enable_shortcut does."""
        names = self._known(task_names)
        self._check_not_running("disable_shortcut")
        self._shortcuts.disable(names)

    def _known(self, refs: Iterable[TaskRef]) -> list[str]:
        names = [name_of(ref) for ref in refs]
        for name in names:
            if name not in self._tasks:
                close = difflib.get_close_matches(name, self._tasks, n=1)
                raise ValueError(f"no task is called {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        return names

    # --- what the subclasses decide

    @abstractmethod
    def _do_fill(self, data_iter: Iterator[Any]) -> None:
        """Submit the first iterations."""

    @abstractmethod
    def _prepare(self, data_iter: Iterator[Any] | None) -> None:
        """Before waiting for the oldest iteration: submit what it still lacks."""

    @abstractmethod
    def _do_retire(self, retired: int, data_iter: Iterator[Any] | None) -> None:
        """An iteration is done: forget it and submit what may follow."""

    @abstractmethod
    def _sequence_number(self, name: str, iter_idx: int) -> int:
        """The place of a globally ordered task among all submissions of such tasks."""

    def _after_task_complete(self, name: str, iter_idx: int) -> None:  # noqa: B027
        """A task was submitted (not: its work is done). Called by the thread that submitted it."""

    # --- data

    def _fetch(self, data_iter: Iterator[Any]) -> Any:
        """The next batch, or _END; on several ranks _END as soon as one of them has none."""
        if self._exhausted:
            return _END
        batch, status, error = _END, AT_END, None
        try:
            batch, status = next(data_iter), HAS_BATCH
        except StopIteration:
            pass
        except Exception as raised:
            status, error = FAILED, raised
        least = self._agree(status)
        if error is not None:
            raise PipelineError(
                f"the data iterator failed when asked for iteration {self._next_iter}: {_short(error)}",
                None,
                self._next_iter,
            ) from error
        if least == FAILED:
            raise PipelineError(
                f"the data iterator of another rank failed at iteration {self._next_iter}", None, self._next_iter
            )
        if least == AT_END:
            self._exhausted = True
            self.leftover += [batch] if status == HAS_BATCH else []
            return _END
        self._next_iter += 1
        return batch

    def _agree(self, status: int) -> int:
        if self._agreement is None:
            return status
        try:
            return self._agreement.least(status)
        except Exception as error:
            raise PipelineError(
                f"the ranks could not agree whether iteration {self._next_iter} has data: {_short(error)}",
                None,
                self._next_iter,
            ) from error

    def _open_iteration(self, batch: Any) -> int:
        """Give the batch just fetched a context and a slot; returns its index."""
        iter_idx = self._next_iter - 1
        with self._failing:  # else a failure's wake-up could fall between here and the clearing of the signals
            self._raise_failure()
            self._slots.begin(iter_idx)
        self._contexts[iter_idx] = IterContext(batch, iter_idx)
        return iter_idx

    # --- submitting, in the worker threads

    def _start_workers(self) -> None:
        groups = dict.fromkeys(s.thread_group for s in self.checked.schedule.values())
        self._queues: dict[str, SimpleQueue] = {group: SimpleQueue() for group in groups}
        self._work_queues = {n: self._queues[s.thread_group] for n, s in self.checked.schedule.items()}
        self._threads = [
            Thread(target=self._work, args=(self._run, self._queues[g]), name=f"pipeline {g}", daemon=True)
            for g in groups
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, run: _Run, queue: SimpleQueue) -> None:
        name, iter_idx = None, None
        try:
            with self.device.open_thread(self._emit_nvtx):
                while (item := queue.get()) is not None:
                    iter_idx, name = item
                    if run.failure is None:
                        self._submit_task(run, iter_idx, name)
        except BaseException as error:
            self._fail(run, error, name, iter_idx)

    def _submit_task(self, run: _Run, iter_idx: int, name: str) -> None:
        """Wait for what the task needs (thread and stream), launch it, let go who waits for it (SWP-9)."""
        slot, stream = self._slots.of(iter_idx), self._streams[name]
        self._wait_for_all(run, name, iter_idx, self.checked.intra[name], slot)
        if self.checked.inter[name] and iter_idx > 0:
            self._wait_for_all(run, name, iter_idx, self.checked.inter[name], self._slots.of(iter_idx - 1))
        if run.failure is not None:
            return
        ctx = self._contexts[iter_idx]
        replay = self._shortcuts.will_replay(name)
        self.device.keep_alive(vars(ctx), stream)
        body = partial(self._run_task, run, self._tasks[name], ctx, replay)
        work = Work(name, iter_idx, replay)
        if self.checked.schedule[name].globally_ordered:
            self._launch_ordered(slot, stream, body, work)
        else:
            self.device.launch(stream, body, work)
            self.device.record(slot.events[name], stream)
        if run.failure is None:
            # First the subclass: when the last signal is set, its books are in order and the iteration may be retired.
            self._after_task_complete(name, iter_idx)
            slot.submitted(name)

    def _wait_for_all(self, run: _Run, name: str, iter_idx: int, deps: tuple[str, ...], slot: Slot) -> None:
        stream = self._streams[name]
        for dep in deps:
            signal = slot.signals[dep]
            if not signal.is_set() and not signal.wait(self.signal_timeout_s):
                raise PipelineTimeout(
                    f"task {name!r} of iteration {iter_idx} waited {self.signal_timeout_s:g} s for {dep!r} of iteration "
                    f"{slot.iter_idx}, which {self._whereabouts(dep, slot.iter_idx)}",
                    name,
                    iter_idx,
                )
            if run.failure is not None:
                return
            self.device.wait(stream, slot.events[dep])

    def _launch_ordered(self, slot: Slot, stream: Any, body: Callable[[], None], work: Work) -> None:
        def launch() -> None:
            # Where the body runs after the launch, launching in order is not enough: the collective is in the body.
            if self.device.runs_later and self._last_ordered is not None:
                self.device.wait(stream, self._last_ordered)
            self.device.launch(stream, body, work)
            self.device.record(slot.events[work.task], stream)
            if self.device.runs_later:
                self._last_ordered = self.device.event()
                self.device.record(self._last_ordered, stream)

        try:
            self._sequencer.execute_ordered(self._sequence_number(work.task, work.iteration), launch)
        except PipelineTimeout as late:
            message = f"task {work.task!r} of iteration {work.iteration} {late}"
            raise PipelineTimeout(message, work.task, work.iteration) from None

    def _exec_task(self, task: PipelineTask, ctx: IterContext, replay: bool) -> None:
        """Replay, run and record, or just run (SWP-62)."""
        if replay:
            self._shortcuts.replay(task, ctx)
        elif task.name in self._shortcuts.enabled:
            self._shortcuts.record(task, ctx)
        else:
            task.fn(ctx)

    def _run_task(self, run: _Run, task: PipelineTask, ctx: IterContext, replay: bool) -> None:
        """What is launched: an error stops the engine, and after an error nothing runs any more."""
        if run.failure is not None:
            return
        run.inside[task.name] = ctx.iter_idx
        try:
            self._exec_task(task, ctx, replay)
        except BaseException as error:
            self._fail(run, error, task.name, ctx.iter_idx)
        del run.inside[task.name]

    # --- waiting and failing

    def _await_iteration(self, iter_idx: int) -> None:
        """Return when the iteration is submitted, and the caller is behind its work."""
        slot = self._slots.of(iter_idx)
        end = time.monotonic() + self.progress_timeout_s
        if not slot.complete.wait(self.progress_timeout_s):
            raise self._late(iter_idx, slot.unsubmitted())
        self._raise_failure()
        for name in self._sinks:
            if not self.device.join(slot.events[name], max(0.0, end - time.monotonic())):
                self._raise_failure()
                raise self._late(iter_idx, [name])
        self._raise_failure()

    def _late(self, iter_idx: int, tasks: list[str]) -> PipelineTimeout:
        running = [n for n, i in list(self._run.inside.items()) if i <= iter_idx]
        states = "; ".join(f"{n!r} {self._whereabouts(n, iter_idx)}" for n in tasks)
        inside = "".join(
            f"; {n!r} of iteration {self._run.inside.get(n)} is running" for n in running if n not in tasks
        )
        blamed = (running or tasks)[0]
        return PipelineTimeout(
            f"iteration {iter_idx} is not done after {self.progress_timeout_s:g} s: {states}{inside}", blamed, iter_idx
        )

    def _whereabouts(self, name: str, iter_idx: int) -> str:
        at = self._run.inside.get(name)
        if at is None:
            return "has not begun"
        return "is running" if at == iter_idx else f"is still running for iteration {at}"

    def _fail(self, run: _Run, error: BaseException, name: str | None, iter_idx: int | None) -> None:
        """Keep the first failure and wake everybody; what is launched but has not begun will not run."""
        with self._failing:
            if run.failure is not None:
                return
            if isinstance(error, PipelineError):
                run.failure = error
            else:
                run.failure = _task_failed(error, name, iter_idx)
                run.failure.__cause__ = error
            self._slots.abort()
            self._sequencer.abort()

    def _raise_failure(self) -> None:
        if self._run.failure is not None:
            raise self._run.failure

    def _check_started(self) -> None:
        if self._state == "exhausted":
            raise StopIteration
        if self._state == "failed":
            failure = self._run.failure
            raise PipelineError(
                f"the pipeline has stopped: {failure}. Call drain() before using it again",
                failure.task if failure else None,
                failure.iteration if failure else None,
            ) from failure
        if self._state == "idle":
            raise RuntimeError("the pipeline is empty: call fill_pipeline() before progress()")

    def _check_not_running(self, what: str) -> None:
        if self._state == "running":
            raise RuntimeError(f"{what} was called with iterations in flight: call drain() first")

    # --- beginning and end

    def _reset_state(self) -> None:
        self._state = "idle"
        self._run = _Run()
        self._contexts: dict[int, IterContext] = {}
        self._next_iter = 0  # the next batch's index
        self._next_retire = 0
        self._exhausted = False
        self._last_ordered: Any = None
        self._sequencer.timeout_s = self.signal_timeout_s
        self._sequencer.reset()
        self._slots.reset()
        self._shortcuts.forget_promises()

    def _make_signals(self) -> None:
        self._slots = Slots(list(self._tasks), self.device, self._num_slots, self._spare_slots)
        self._sequencer = _SubmissionSequencer(self.signal_timeout_s)

    def _synchronize(self) -> None:
        self.device.synchronize(self._used_streams())

    def _used_streams(self) -> list[Any]:
        return list({id(s): s for s in self._streams.values()}.values())

    def _finish(self) -> None:
        """Everything is retired: end the threads."""
        self._synchronize()
        self._stop_workers()
        self._state = "exhausted"

    def _stop_after(self, error: BaseException) -> None:
        """End the threads after a failure, and say which could not be ended."""
        self._fail(self._run, error, None, None)
        left = self._stop_workers()
        self._state = "failed"
        if left:  # a thread that comes back later writes into signals nobody uses any more
            self._make_signals()
        if left and hasattr(error, "add_note"):
            error.add_note(f"still inside a task, and cannot be ended from outside: {', '.join(left)}")

    def _stop_workers(self) -> list[str]:
        """End all threads; returns those that did not end."""
        end = time.monotonic() + self.join_timeout_s
        for queue in self._queues.values() if self._threads else ():
            queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        left = [f"thread {t.name!r}" for t in self._threads if t.is_alive()]
        self._threads = []
        return left + self.device.close(self._used_streams(), max(0.1, end - time.monotonic()))


class _StopOnError:
    """Around the steps of a run: what is raised inside, StopIteration apart, stops the engine."""

    def __init__(self, pipeline: _PipelineBase) -> None:
        self._pipeline = pipeline

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and not isinstance(error, StopIteration):
            self._pipeline._stop_after(error)


def _task_failed(error: BaseException, name: str | None, iter_idx: int | None) -> PipelineError:
    where = f"task {name!r} failed in iteration {iter_idx}" if name else "the pipeline was interrupted"
    return PipelineError(f"{where}: {_short(error)}", name, iter_idx)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _without_followers(plan: CheckedPlan) -> list[str]:
    """Tasks no other waits for in the same iteration: when they are done, all of it is."""
    waited_for = {dep for deps in plan.intra.values() for dep in deps}
    return [name for name in plan.schedule if name not in waited_for]


def _print_speed(what: str, iterations: int, seconds: float) -> None:
    each = f", {seconds / iterations * 1e3:.3f} ms each" if iterations else ""
    print(f"{what}: {iterations} iterations in {seconds:.3f} s{each}")
