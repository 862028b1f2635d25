"""What an engine is to us: something that runs a function on units somewhere, retries, and tells as each one ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from pipelines.base.errors import WrongValue
from pipelines.base.extras import need

ATTEMPTS = 3
UnitT = TypeVar("UnitT")

_ENGINES = {"in-process": "in_process", "ray": "on_ray", "dask": "on_dask"}
NAMES = tuple(_ENGINES)


@dataclass(frozen=True)
class Done:
    """How a unit ended. `error`: None if it succeeded. `is_death`: its worker died with it, each time."""

    unit: Any
    result: Any = None
    error: str | None = None
    attempts: int = 1
    is_death: bool = False


class Engine(Protocol):
    """Runs units. Used as a context: leaving it ends what the engine started, and nothing else."""

    slots: int  # how many units it runs at once
    cpus: int | None  # how many CPUs each of them may use; None: all of the machine

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...

    def submit(self, units: Sequence[UnitT], work: Callable[[UnitT], Any]) -> Iterator[Done]:
        """Yields one Done per unit, as they end. Closed early (Ctrl-C), it cancels the rest."""
        ...


def open_engine(name: str, address: str | None = None) -> Engine:
    """Returns an engine by name; without an address, Ray and Dask start on this machine.

    Raises MissingExtra if its package is not installed and ValueError for another name.
    """
    if name not in _ENGINES:
        raise WrongValue(f"there is no engine {name!r}; there are: {', '.join(NAMES)}")
    if name != "in-process":
        need(name, f"--engine {name}")
    return import_module(f"pipelines.engines.{_ENGINES[name]}").open_engine(address)


def first_line(error: BaseException) -> str:
    """Returns an error's type and the first line of what it says."""
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0]}"[:500]
