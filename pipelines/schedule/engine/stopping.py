"""End of a run, by the end of data or by a failure.

The first thread that detects a failure records it and wakes the other threads.
"""

from __future__ import annotations

import time
from typing import Any

from pipelines.schedule.engine.state import _EngineState, _Run
from pipelines.schedule.errors import PipelineError, PipelineTimeout


class _Stopping(_EngineState):
    """Part of an engine that records failures with task and iteration, and ends the threads."""

    def _fail(self, run: _Run, error: BaseException, name: str | None, iter_idx: int | None) -> None:
        """Record the first failure and wake all waiters. Launched functions that have not started do not run."""
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

    def _late(self, iter_idx: int, tasks: list[str]) -> PipelineTimeout:
        running = [n for n, i in list(self._run.inside.items()) if i <= iter_idx]
        states = "; ".join(f"{n!r} {self._whereabouts(n, iter_idx)}" for n in tasks)
        running_text = "".join(
            f"; {n!r} of iteration {self._run.inside.get(n)} is running" for n in running if n not in tasks
        )
        blamed = next(iter(running or tasks), None)  # None if the last task has just ended
        return PipelineTimeout(
            f"iteration {iter_idx} is not done after {self.progress_timeout_s:g} s: {states}{running_text}",
            blamed,
            iter_idx,
        )

    def _whereabouts(self, name: str, iter_idx: int) -> str:
        running_iter = self._run.inside.get(name)
        if running_iter is None:
            return "has not begun"
        return "is running" if running_iter == iter_idx else f"is still running for iteration {running_iter}"

    def _finish(self) -> None:
        """End the threads. Call this when every iteration is retired."""
        self._synchronize()
        self._stop_workers()
        self._state = "exhausted"

    def _stop_after(self, error: BaseException) -> None:
        """End the threads after a failure, and add a note about threads that did not end to the error."""
        self._fail(self._run, error, None, None)
        self._lose_step(error)
        unfinished = self._stop_workers()
        self._state = "failed"
        if unfinished:
            error.add_note(_left_behind(unfinished))

    def _lose_step(self, error: BaseException) -> None:
        """Record that the ranks may be out of step, after an error inside a run.

        Other ranks may have started collectives that this rank will never start. An error of the data is excluded,
        because all ranks agreed on it and finished the started iterations.
        """
        if self._agreement is not None and error is not self._data_error:
            self._agreement.give_up(error)

    def _stop_workers(self) -> list[str]:
        """End all threads. Return the names of threads that did not end."""
        deadline = time.monotonic() + self.join_timeout_s
        for queue in self._queues.values() if self._threads else ():
            queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        unfinished = [f"thread {t.name!r}" for t in self._threads if t.is_alive()]
        self._threads = []
        unfinished += self.device.close(self._used_streams(), max(0.1, deadline - time.monotonic()))
        if unfinished:  # new signals, because a thread that resumes later sets the old ones
            self._make_signals()
        return unfinished


class _StopOnError:
    """Context manager around the steps of a run. Any exception inside, except StopIteration, stops the engine."""

    def __init__(self, pipeline: _Stopping) -> None:
        self._pipeline = pipeline

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and not isinstance(error, StopIteration):
            self._pipeline._stop_after(error)


def _task_failed(error: BaseException, name: str | None, iter_idx: int | None) -> PipelineError:
    event = f"task {name!r} failed in iteration {iter_idx}" if name else "the pipeline was interrupted"
    return PipelineError(f"{event}: {_short(error)}", name, iter_idx)


def _left_behind(threads: list[str]) -> str:
    return f"still inside a task, and cannot be ended from outside: {', '.join(threads)}"


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
