"""Faults in the parts of a file, such as its lines, with the number of parts and the first part for each fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pipelines.models.sqltext import as_text

SHOWN = 80
T = TypeVar("T")


class BadValue(ValueError):
    """A value that does not fit its column. The message names both."""


@dataclass
class Fault:
    """Parts with the same fault. `detail` describes the first of them, with its location in the file."""

    severity: str
    n: int
    detail: str


@dataclass
class Faults:
    """Faults by name, in the order of their first occurrence."""

    by_name: dict[str, Fault] = field(default_factory=dict)

    def add(self, fault: str, severity: str, detail: str, n: int = 1) -> None:
        """Count `n` occurrences of a fault, and keep the detail of the first call."""
        entry = self.by_name.setdefault(fault, Fault(severity, 0, as_text(detail)))
        entry.n += n

    def tried(self, line: int, read: Callable[[], T]) -> T | None:
        """Return `read()`, or None after recording a fault if it raises BadValue."""
        try:
            return read()
        except BadValue as error:
            self.add("wrong_value", "warning", f"line {line:,}: {error}: NULL")
            return None

    @property
    def n_warnings(self) -> int:
        """The number of skipped parts or values."""
        return sum(fault.n for fault in self.by_name.values() if fault.severity == "warning")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per fault, by name, for a table of findings: fault, severity, n, detail."""
        return [{"fault": name, **vars(fault)} for name, fault in sorted(self.by_name.items())]


def shown(text: str) -> str:
    """Return the first SHOWN characters of a foreign text, quoted, for a message."""
    return repr(text[:SHOWN])
