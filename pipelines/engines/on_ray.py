"""Work units as tasks of Ray, on the cluster at an address (`ray://host:10001`, `host:6379`), or on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
from ray import exceptions  # pyright: ignore[reportMissingImports]

from pipelines.engines.engine import ATTEMPTS, Done, UnitT, first_line

_LOCAL = "local"  # starts a new cluster, because Ray would otherwise join any cluster on this machine
_CPUS = 1  # per unit
_OBJECTS = 100 << 20  # bytes of shared memory: units and results are small


class OnRay:
    """An engine with one CPU per unit. Ray reruns a unit if its worker or node dies or its function raises."""

    cpus: int | None = _CPUS

    def __init__(self, address: str | None) -> None:
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            address = address or os.environ.get("RAY_ADDRESS") or _LOCAL
            more: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _OBJECTS}
            options = more if address == _LOCAL else {}
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
        self.slots = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def __enter__(self) -> OnRay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            ray.shutdown()

    def submit(self, units: Sequence[UnitT], work: Callable[[UnitT], Any]) -> Iterator[Done]:
        """Yield each unit's outcome when it is done. If the iterator is closed early, kill the running units."""
        task = ray.remote(num_cpus=_CPUS, max_retries=ATTEMPTS - 1, retry_exceptions=True)(_call)
        shared = ray.put(work)
        waiting = {task.remote(shared, unit): unit for unit in units}
        try:
            while waiting:
                (ready,), _ = ray.wait(list(waiting), num_returns=1)
                yield _done(waiting.pop(ready), ready)
        finally:
            for unfinished in waiting:
                ray.cancel(unfinished, force=True)


def _call(work: Callable[[Any], Any], unit: Any) -> Any:
    return work(unit)


def _done(unit: Any, ready: Any) -> Done:
    try:
        return Done(unit, ray.get(ready))
    except exceptions.RayTaskError as error:  # the work itself raised
        return Done(unit, error=first_line(error.cause or error), attempts=ATTEMPTS)
    except exceptions.RayError as error:  # its worker or node was lost, or Ray ended it because memory ran out
        return Done(unit, error=first_line(error), attempts=ATTEMPTS, is_death=True)
