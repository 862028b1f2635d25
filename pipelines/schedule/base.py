"""What both engines share and show: filling, progressing, draining, serial runs, shortcuts (SWP-35).

The subclasses decide when a task is submitted: `_do_fill`, `_prepare`, `_do_retire`, `_after_task_complete`. What goes
on behind the public methods is in engine/.
"""

from __future__ import annotations

import difflib
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from pipelines.schedule.devices import Work
from pipelines.schedule.engine.batches import _END
from pipelines.schedule.engine.stopping import _StopOnError, _task_failed
from pipelines.schedule.engine.submitting import _Submitting
from pipelines.schedule.plan import IterContext, TaskRef, name_of

__all__ = ["_END", "_PipelineBase"]


class _PipelineBase(_Submitting):
    """An engine for one plan. Not for use by several threads at once.

    `device`: a CUDA index or "cuda:N", "cpu", "simulated", or a device object. `process_group`: a gloo group over the
    ranks that run the same plan; by default one is made when a task is globally ordered and torch.distributed runs.

    A failure (in a task, in the data, a time-out) is raised by the call that notices it, as PipelineError with `task`
    and `iteration`; the threads have ended then, and after `drain()` the engine can be used again.
    """

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


def _print_speed(what: str, iterations: int, seconds: float) -> None:
    each = f", {seconds / iterations * 1e3:.3f} ms each" if iterations else ""
    print(f"{what}: {iterations} iterations in {seconds:.3f} s{each}")
