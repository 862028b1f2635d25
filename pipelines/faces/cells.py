"""Values of a query as human-readable text, and as exact JSON for programs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from pipelines.base.foreign_text import visible
from pipelines.base.units import number

NULL = "NULL"
LONGEST = 10_000
"""Maximum number of characters of a cell in the console. A download contains all characters."""
_SAFE = 2**53 - 1  # JavaScript's Number.MAX_SAFE_INTEGER


@dataclass(frozen=True)
class Rows:
    """The first rows of an answer. `cut`: the reason for omitting further rows, or "" if these are all."""

    columns: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]
    cut: str


def rows_as_json(result: Rows) -> dict[str, Any]:
    """Return an answer as an object for JavaScript.

    `columns` (name, type, is_number), `rows`, `cut` (as in Rows) and `n_cut`, the number of shortened cells.
    """
    cutter = Cutter(LONGEST, _SAFE)
    rows = [[cutter.cell(value) for value in row] for row in result.rows]
    columns = [
        {"name": visible(name), "type": kind, "is_number": is_number(kind)}
        for name, kind in zip(result.columns, result.types, strict=True)
    ]
    return {"columns": columns, "rows": rows, "cut": result.cut, "n_cut": cutter.n_cut}


def is_number(kind: str) -> bool:
    """Return whether a DuckDB type is numeric. A numeric column is sorted by number and right-aligned."""
    plain = kind.partition("(")[0]
    return plain in ("DOUBLE", "FLOAT", "DECIMAL") or plain.endswith("INT") or plain.endswith("INTEGER")


def shown(value: Any) -> str:
    """Return a value as human-readable text on one line, NULL for None."""
    if value is None:
        return NULL
    return number(value) if isinstance(value, float) else visible(_text(value))


class Cutter:
    """Conversion of values to JSON.

    Texts are cut to `longest` characters, and end with their original length if cut. `n_cut` counts them. Integers stay
    numbers up to `largest` (None: all).
    """

    def __init__(self, longest: int, largest: int | None = None) -> None:
        self.longest, self.largest, self.n_cut = longest, largest, 0

    def cell(self, value: Any) -> Any:
        """Return None, a boolean or an exact number unchanged, and any other value as text."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if self.largest is None or abs(value) <= self.largest else str(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)  # JSON has no infinity
        text = visible(_text(value))
        if len(text) > self.longest:
            self.n_cut += 1
            return f"{text[: self.longest]}… ({len(text):,} characters)"
        return text


def as_json(value: Any, *, ensure_ascii: bool = True) -> str:
    """Return a value as JSON. Keys, numbers that JSON does not allow (NaN, Infinity) and other types become text."""
    return json.dumps(valid_json(value), default=str, ensure_ascii=ensure_ascii)


def valid_json(value: Any) -> Any:
    """Return a value with keys, and numbers that JSON does not allow, as text. The keys of a MAP may be of any type."""
    if isinstance(value, dict):
        return {str(key): valid_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [valid_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Any) -> str:
    return as_json(value, ensure_ascii=False) if isinstance(value, (list, dict, tuple)) else str(value)
