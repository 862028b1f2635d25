"""Interface of the execution engines.

An engine runs a function on work units, retries failures, and yields each result as its unit ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

ATTEMPTS = 3
UnitT = TypeVar("UnitT")


@dataclass(frozen=True)
class Done:
    """The outcome of a unit. `error`: None if it succeeded. `is_death`: whether its worker died in every attempt."""

    unit: Any
    result: Any = None
    error: str | None = None
    attempts: int = 1
    is_death: bool = False


class Engine(Protocol):
    """An engine that runs units. Leaving its context ends only what the engine itself started."""

    slots: int  # number of concurrent units
    cpus: int | None  # CPUs per unit, None for all CPUs of the machine

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...

    def submit(self, units: Sequence[UnitT], work: Callable[[UnitT], Any]) -> Iterator[Done]:
        """Yield one Done per unit, as soon as the unit ends. If closed early (Ctrl-C), cancel the remaining units."""
        ...


def first_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message, at most 500 characters."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:500]
