"""Units as tasks of Dask: on a cluster with this scheduler address (`tcp://host:8786`), or on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distributed import (  # pyright: ignore[reportMissingImports]
    Client,
    KilledWorker,
    LocalCluster,
    as_completed,
)

from pipelines.engines.engine import ATTEMPTS, Done, UnitT, first_line
from pipelines.engines.worker_share import cores


class OnDask:
    """An engine with one unit per worker thread. Dask reruns a unit if its worker dies or its function raises."""

    cpus = 1

    def __init__(self, address: str | None) -> None:
        local = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 50}
        self._cluster = None if address else LocalCluster(n_workers=cores(), **local)
        self._client: Any = Client(address or self._cluster)
        self.slots = max(1, sum(self._client.nthreads().values()))

    def __enter__(self) -> OnDask:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._cluster:
            self._cluster.close()

    def submit(self, units: Sequence[UnitT], work: Callable[[UnitT], Any]) -> Iterator[Done]:
        """Yield each unit's outcome when it is done. If the iterator is closed early, cancel the remaining units."""
        futures = self._client.map(work, units, pure=False, retries=ATTEMPTS - 1)
        unit_of = dict(zip(futures, units, strict=True))
        try:
            for future in as_completed(futures):
                yield _done(unit_of.pop(future), future)
        finally:
            self._client.cancel(list(unit_of), force=True)


def _done(unit: Any, future: Any) -> Done:
    error = future.exception()
    if error is None:
        return Done(unit, future.result())
    # KilledWorker: after the scheduler's own number of deaths (distributed.scheduler.allowed-failures, 3 by default)
    return Done(unit, error=first_line(error), attempts=ATTEMPTS, is_death=isinstance(error, KilledWorker))


def open_engine(address: str | None) -> OnDask:
    """Return the engine, connected. Raises OSError."""
    return OnDask(address)
