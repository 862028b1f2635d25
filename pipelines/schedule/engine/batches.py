"""Iterations from batches, which end at the same iteration on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.schedule.engine.rank_agreement import AT_END, FAILED, HAS_BATCH
from pipelines.schedule.engine.slots import Slot
from pipelines.schedule.engine.stopping import _short, _Stopping
from pipelines.schedule.errors import PipelineError
from pipelines.schedule.plan.plan import IterContext

_END = object()  # returned by _fetch if there is no batch


class _Batches(_Stopping):
    """Part of an engine that fetches batches and opens an iteration for each."""

    def _fetch(self, data_iter: Iterator[Any]) -> Any:
        """Return the next batch, or _END if this rank or another rank has no further batch.

        An error from the data iterator on any rank also ends the data. The error is stored in `_data_error` and raised
        when the iterations that all ranks started are finished. Otherwise one rank would abandon collectives that
        another rank has started.
        """
        if self._exhausted:
            return _END
        batch, status, error = _END, AT_END, None
        try:
            batch, status = next(data_iter), HAS_BATCH
        except StopIteration:
            pass
        except Exception as data_error:
            status, error = FAILED, data_error
        try:
            lowest = self._agree(status)
        except PipelineError as agreement_error:
            self._keep(batch)
            if error is not None:
                agreement_error.add_note(f"also, the data iterator failed when asked for it: {_short(error)}")
            raise
        if lowest == HAS_BATCH:
            self._next_iter += 1
            return batch
        self._exhausted = True
        self._keep(batch)
        if error is not None:
            self._data_error = self._data_failed("the data iterator failed when asked for", f": {_short(error)}")
            self._data_error.__cause__ = error
        elif lowest == FAILED:
            self._data_error = self._data_failed("the data iterator of another rank failed at")
        return _END

    def _agree(self, status: int) -> int:
        if self._agreement is None:
            return status
        try:
            return self._agreement.least(status, self._next_iter, min(self._pause(), self._longest_pause))
        except Exception as error:
            detail = f" has data: {_short(error)}"
            raise self._data_failed("the ranks could not agree whether", detail) from error

    def _keep(self, batch: Any) -> None:
        """Append a fetched batch that gets no iteration to `leftover`, unless it is _END."""
        if batch is not _END:
            self.leftover.append(batch)

    def _data_failed(self, event: str, detail: str = "") -> PipelineError:
        return PipelineError(f"{event} iteration {self._next_iter}{detail}", None, self._next_iter)

    def _raise_data_error(self) -> None:
        """Raise the data error, if any. Call this after the iterations that all ranks started are finished."""
        if self._data_error is not None:
            raise self._data_error

    def _open_iteration(self, batch: Any) -> int:
        """Create a context and a slot for the last fetched batch. Return its iteration's index."""
        iter_idx = self._next_iter - 1
        with (
            self._failing
        ):  # otherwise a failure could set the signals before they are cleared, and its wake-up would be lost
            self._raise_failure()
            self._slots.begin(iter_idx)
        self._mark_callers_work(self._slots.of(iter_idx), batch)
        self._contexts[iter_idx] = IterContext(batch, iter_idx)
        return iter_idx

    def _mark_callers_work(self, slot: Slot, batch: Any) -> None:
        """Record the point on the caller's stream that the iteration's first tasks must wait for.

        The first iteration waits for work before the run, such as work on the weights. Each iteration waits for the
        data iterator's work on its batch. Other iterations do not wait. progress() has put the caller's stream behind
        an earlier iteration, so a wait would end all overlap with that iteration.
        """
        stream = self.device.current_stream()
        if stream is not None and not (slot.iter_idx == 0 or self.device.holds({"batch": batch})):
            stream = None
        slot.callers_stream = stream
        if stream is not None:
            self.device.record(slot.callers_event, stream)
