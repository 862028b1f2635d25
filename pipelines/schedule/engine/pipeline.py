"""The base class of both engines: fill, progress, drain, serial runs, shortcuts.

Subclasses decide when a task is submitted, in `_do_fill`, `_prepare`, `_do_retire` and `_after_task_complete`. The
other modules in engine/ implement the public methods.
"""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, Self

from pipelines.schedule.devices import Work
from pipelines.schedule.engine.batches import _END
from pipelines.schedule.engine.modes import Modes
from pipelines.schedule.engine.state import _Run
from pipelines.schedule.engine.stopping import _left_behind, _StopOnError, _task_failed
from pipelines.schedule.engine.submitting import _Submitting
from pipelines.schedule.errors import PipelineError
from pipelines.schedule.plan.plan import IterContext, TaskRef, name_of, no_task

__all__ = ["_END", "_PipelineBase"]

OnRetire = Callable[[IterContext], None]


class _PipelineBase(_Submitting):
    """An engine for one plan. Not thread-safe: call it from one thread at a time.

    `device`: a CUDA index or "cuda:N", "cpu", "simulated", or a device object. `process_group`: a gloo group over the
    ranks that run the same plan. By default, a group is created if a task is globally ordered and torch.distributed is
    initialized.

    A failure (in a task, in the data, a timeout) is raised as PipelineError, with `task` and `iteration`, by the call
    that detects it. By then the threads have ended, and after `drain()` the engine can be used again. An error from the
    data iterator is raised on every rank, after the earlier iterations have finished. After any other failure with
    several ranks, only some of them may have started a collective. So no further run can start in these process groups,
    and an attempt raises PipelineError, too.

    `with pipe:` ends with drain(), or with abort() after an exception. If an engine is garbage-collected, its threads
    end as soon as the tasks in flight are done.

    Tasks run in the modes of the caller of fill_pipeline or run (no_grad, inference_mode, autocast, the default
    device). Modes that cannot be carried to another thread cause a RuntimeWarning, once per engine.
    """

    # --- running

    def fill_pipeline(self, data_iter: Iterable[Any], on_retire: OnRetire | None = None) -> Iterator[Any]:
        """Start the threads and the first iterations. Return the iterator to pass to progress().

        `on_retire` gets the context of each iteration that progress() or drain() finishes, in order and in the caller's
        thread. On CUDA the caller's current stream already waits for the iteration's work. An exception in `on_retire`
        stops the engine.

        Raise RuntimeError if the pipeline is already filled. Call drain() first.
        """
        if self._state in ("running", "failed"):
            raise RuntimeError("fill_pipeline was called on a pipeline that is already filled: call drain() first")
        self._check_in_step()
        data = iter(data_iter)
        self._reset_state()
        self._run, self._on_retire = _Run(Modes.current()), on_retire
        if self._tasks_run_in_caller:
            self._run.enter(self._run.modes)
        self._begin_agreement(serial=False)
        self._start_workers()
        self._state = "running"
        with _StopOnError(self):
            self._do_fill(data)
            if not self._contexts:
                self._raise_data_error()
        return data

    def progress(self, data_iter: Iterator[Any] | None = None) -> int:
        """Wait for the oldest iteration, submit the next tasks, and return the oldest iteration's index.

        Pass None as `data_iter` to take no new batch and only finish the iterations in flight. Raise StopIteration if
        no iteration is in flight, PipelineError after a failure, RuntimeError if fill_pipeline was not called, and
        TypeError if `data_iter` is not an iterator. At the end of the data, the threads have ended.
        """
        self._check_started()
        if data_iter is not None and not hasattr(data_iter, "__next__"):
            raise TypeError("progress() takes the iterator that fill_pipeline returned, not the data it was made from")
        self._warn_of_modes()
        with _StopOnError(self):
            oldest = self._next_retire
            self._prepare(data_iter)
            if oldest not in self._contexts:
                if data_iter is not None or self._exhausted:
                    self._finish()
                    self._raise_data_error()
                raise StopIteration
            self._await_iteration(oldest)
            ctx = self._contexts[oldest]
            self._next_retire += 1
            self._do_retire(oldest, data_iter)
            if self._on_retire is not None:
                self._give(ctx, self._on_retire)
            return oldest

    def _give(self, ctx: IterContext, on_retire: OnRetire) -> None:
        self.device.keep_alive(vars(ctx), self.device.current_stream())
        try:
            on_retire(ctx)
        except StopIteration as error:
            raise RuntimeError("on_retire raised StopIteration, which would look like the end of the data") from error

    def _await_iteration(self, iter_idx: int) -> None:
        """Wait until the iteration is submitted, and make the caller wait for its device work."""
        slot = self._slots.of(iter_idx)
        deadline = time.monotonic() + self.progress_timeout_s
        if not slot.complete.wait(self.progress_timeout_s):
            raise self._late(iter_idx, slot.unsubmitted())
        self._raise_failure()
        for name in self._sinks:
            if not self.device.join(slot.events[name], max(0.0, deadline - time.monotonic())):
                self._raise_failure()
                raise self._late(iter_idx, [name])
        self._raise_failure()

    def run(
        self,
        data_iter: Iterable[Any],
        verbose: bool = False,
        emit_nvtx: bool = False,
        on_retire: OnRetire | None = None,
    ) -> float:
        """Run all of `data_iter`. Return the elapsed seconds, including the last work on the device.

        `emit_nvtx`: wrap every submitting thread in torch.autograd.profiler.emit_nvtx(). It has an effect only on CUDA.
        `on_retire`: as for fill_pipeline.
        """
        self._emit_nvtx = emit_nvtx
        callers_thread = self.device.open_thread(emit_nvtx) if self._tasks_run_in_caller else nullcontext()
        try:
            with callers_thread:
                start = self.device.clock()
                data = self.fill_pipeline(data_iter, on_retire)
                n_done = 0
                while True:
                    try:
                        self.progress(data)
                        n_done += 1
                    except StopIteration:
                        break
                elapsed = self.device.clock() - start
        finally:
            self._emit_nvtx = False
        if verbose:
            _print_speed(type(self).__name__, n_done, elapsed)
        return elapsed

    def run_serial(
        self,
        data_iter: Iterable[Any],
        verbose: bool = False,
        emit_nvtx: bool = False,
        on_retire: OnRetire | None = None,
    ) -> float:
        """Run all of `data_iter` serially as a baseline: task after task on the default stream, without threads.

        Return the elapsed seconds, including the last work on the device.
        """
        self._check_not_running("run_serial")
        self._check_in_step()
        data, n_done = iter(data_iter), 0
        self._reset_state()
        self._begin_agreement(serial=True)
        with self.device.open_thread(emit_nvtx):
            self._synchronize()
            start = self.device.clock()
            while (batch := self._fetch_serially(data)) is not _END:
                ctx = IterContext(batch, n_done)
                self._run_serially(ctx)
                if on_retire is not None:
                    self._give(ctx, on_retire)
                n_done += 1
            self._synchronize()
            self._raise_data_error()
            elapsed = self.device.clock() - start
        if verbose:
            _print_speed(f"{type(self).__name__} (serial)", n_done, elapsed)
        return elapsed

    def _fetch_serially(self, data_iter: Iterator[Any]) -> Any:
        try:
            return self._fetch(data_iter)
        except BaseException as error:
            self._lose_step(error)
            raise

    def run_one_serial_iter(self, batch: Any, iter_idx: int = 0) -> None:
        """Run one iteration on the default stream, in topological order. Shortcuts apply.

        Afterward, no iteration is in flight, but the device is not synchronized.
        """
        self._check_not_running("run_one_serial_iter")
        self._check_in_step()
        self._run_serially(IterContext(batch, iter_idx))

    def _run_serially(self, ctx: IterContext) -> None:
        for name in self._serial_order:
            task, replay = self._tasks[name], self._shortcuts.will_replay(name)
            work = Work(name, ctx.iter_idx, replay, "SWP_serial")
            try:
                self.device.run_here(partial(self._exec_task, task, ctx, replay), work)
            except BaseException as error:
                self._shortcuts.forget_promises()
                failure = _task_failed(error, name, ctx.iter_idx) if isinstance(error, Exception) else error
                self._lose_step(failure)
                if failure is error:
                    raise
                raise failure from error

    def drain(self) -> None:
        """Finish the iterations in flight, end the threads, and make the engine ready for fill_pipeline.

        Shortcuts and their recordings are kept. After a failure, drain() only cleans up. If draining itself fails, the
        error is raised, but the engine is ready for reuse.
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

    def abort(self) -> None:
        """Stop immediately and reset the engine. Tasks that have not started do not run.

        Iterations in flight are dropped. Wait at most `join_timeout_s` for running tasks. A RuntimeWarning names the
        threads that did not end, because a thread cannot be killed from outside. If iterations are in flight on several
        ranks, no other run can follow (see the class).
        """
        try:
            if self._state == "running":
                aborted = PipelineError("abort() was called", None, self._next_retire)
                self._fail(self._run, aborted, None, None)
                if self._contexts:
                    self._lose_step(aborted)
                if unfinished := self._stop_workers():
                    warnings.warn(_left_behind(unfinished), RuntimeWarning, stacklevel=2)
        finally:
            self._reset_state()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.drain()
        else:
            self.abort()

    # --- shortcuts

    def enable_shortcut(self, *task_names: TaskRef) -> None:
        """Make tasks record their next run and replay it afterward.

        Every rank must switch the same tasks. Raise ValueError if a task is unknown (then no task is switched), and
        RuntimeError if iterations are in flight. Call drain() first.
        """
        names = self._known(task_names)
        self._check_not_running("enable_shortcut")
        self._shortcuts.enable(names)

    def disable_shortcut(self, *task_names: TaskRef) -> None:
        """Make tasks run normally again, and discard their recordings.

        Raise the same errors as enable_shortcut.
        """
        names = self._known(task_names)
        self._check_not_running("disable_shortcut")
        self._shortcuts.disable(names)

    def _known(self, refs: Iterable[TaskRef]) -> list[str]:
        names = [name_of(ref) for ref in refs]
        for name in names:
            if name not in self._tasks:
                raise ValueError(no_task(name, self._tasks))
        return names

    # --- methods of the subclasses

    @abstractmethod
    def _do_fill(self, data_iter: Iterator[Any]) -> None:
        """Submit the first iterations."""

    @abstractmethod
    def _prepare(self, data_iter: Iterator[Any] | None) -> None:
        """Submit the oldest iteration's tasks that are not submitted yet, before progress() waits for the iteration."""

    @abstractmethod
    def _do_retire(self, retired: int, data_iter: Iterator[Any] | None) -> None:
        """Discard a finished iteration, and submit the tasks that may now follow."""


def _print_speed(label: str, iterations: int, seconds: float) -> None:
    per_iteration = f", {seconds / iterations * 1e3:.3f} ms each" if iterations else ""
    print(f"{label}: {iterations} iterations in {seconds:.3f} s{per_iteration}")
