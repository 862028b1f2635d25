"""Batches become iterations, and their end is the same on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.schedule.agree import AT_END, FAILED, HAS_BATCH
from pipelines.schedule.engine.stopping import _short, _Stopping
from pipelines.schedule.errors import PipelineError
from pipelines.schedule.plan import IterContext

_END = object()  # what _fetch gives when there is no batch


class _Batches(_Stopping):
    """Taking batches, and opening an iteration for each."""

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
            raise self._data_failed("the data iterator failed when asked for", f": {_short(error)}") from error
        if least == FAILED:
            raise self._data_failed("the data iterator of another rank failed at")
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
            why = f" has data: {_short(error)}"
            raise self._data_failed("the ranks could not agree whether", why) from error

    def _data_failed(self, what: str, why: str = "") -> PipelineError:
        return PipelineError(f"{what} iteration {self._next_iter}{why}", None, self._next_iter)

    def _open_iteration(self, batch: Any) -> int:
        """Give the batch just fetched a context and a slot; returns its index."""
        iter_idx = self._next_iter - 1
        with self._failing:  # else a failure's wake-up could fall between here and the clearing of the signals
            self._raise_failure()
            self._slots.begin(iter_idx)
        self._contexts[iter_idx] = IterContext(batch, iter_idx)
        return iter_idx
