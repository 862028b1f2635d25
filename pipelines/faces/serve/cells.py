"""Values of a query as JSON for the page: exact, and as text where JavaScript would change them."""

from __future__ import annotations

import json
import math
from typing import Any

from pipelines.base.foreign_text import visible
from pipelines.faces.asking import Rows

LONGEST = 10_000
"""Characters of a cell that are sent; a download has all of them."""
_SAFE = 2**53 - 1  # the largest integer that a JavaScript number holds, with all below it


def rows_as_json(found: Rows) -> dict[str, Any]:
    """Returns columns (name, type, whether they are numbers), rows and `n_cut`, the number of cells that were cut."""
    cutter = _Cutter()
    rows = [[cutter.cell(value) for value in row] for row in found.rows]
    columns = [
        {"name": visible(name), "type": kind, "is_number": is_number(kind)}
        for name, kind in zip(found.columns, found.types, strict=True)
    ]
    return {"columns": columns, "rows": rows, "cut": found.cut, "n_cut": cutter.n_cut}


def is_number(kind: str) -> bool:
    """Whether a type of DuckDB is one of numbers, which are sorted as such and stand on the right."""
    plain = kind.partition("(")[0]
    return plain in ("DOUBLE", "FLOAT", "DECIMAL") or plain.endswith("INT") or plain.endswith("INTEGER")


class _Cutter:
    def __init__(self) -> None:
        self.n_cut = 0

    def cell(self, value: Any) -> Any:
        """None, a boolean or a number that JavaScript holds exactly; everything else as text."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if abs(value) <= _SAFE else str(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        text = visible(_text(value))
        if len(text) > LONGEST:
            self.n_cut += 1
            return f"{text[:LONGEST]}… ({len(text):,} characters)"
        return text


def _text(value: Any) -> str:
    if isinstance(value, (list, dict, tuple)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)
