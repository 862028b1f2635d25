"""An engine that runs units one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipelines.base.stopping import raise_if_stopped
from pipelines.engines.engine import ATTEMPTS, Done, UnitT, first_line


class InProcess:
    """An engine without a cluster: one unit at a time, with all CPUs of the machine."""

    slots = 1
    cpus: int | None = None

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because nothing was started."""

    def submit(self, units: Sequence[UnitT], work: Callable[[UnitT], Any]) -> Iterator[Done]:
        """Run the units one after another, and yield each unit's outcome when it is done."""
        for unit in units:
            yield _done(unit, work)


def _done(unit: Any, work: Callable[[Any], Any]) -> Done:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return Done(unit, work(unit), attempts=attempt)
        except Exception as error:
            raise_if_stopped(error)
            failed = Done(unit, error=first_line(error), attempts=attempt)
    return failed
