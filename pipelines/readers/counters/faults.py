"""What is wrong with lines of a counter file: how many have each fault, and where the first is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pipelines.models.sqltext import as_text

SHOWN = 80
T = TypeVar("T")


class BadValue(ValueError):
    """A value that is not what its column holds; the message names both."""


@dataclass
class Fault:
    """Lines with one fault. `detail`: of the first of them, with its line."""

    severity: str
    n: int
    detail: str


@dataclass
class Faults:
    """Faults by name, in the order in which they were met."""

    found: dict[str, Fault] = field(default_factory=dict)

    def add(self, fault: str, severity: str, detail: str, n: int = 1) -> None:
        """Count a fault; the first one's detail is kept."""
        known = self.found.setdefault(fault, Fault(severity, 0, as_text(detail)))
        known.n += n

    def tried(self, line: int, read: Callable[[], T]) -> T | None:
        """Returns what `read` returns; None, and a fault, where that raises BadValue."""
        try:
            return read()
        except BadValue as error:
            self.add("wrong_value", "warning", f"line {line:,}: {error}: NULL")
            return None

    @property
    def n_warnings(self) -> int:
        """Returns how many lines or values were left out."""
        return sum(fault.n for fault in self.found.values() if fault.severity == "warning")


def shown(text: str) -> str:
    """Returns the beginning of a foreign text, for a message."""
    return repr(text[:SHOWN])
