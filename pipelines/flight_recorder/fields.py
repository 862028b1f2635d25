"""Checks the types of a dump's fields; an error names the field."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pipelines.sqltext import as_text

LARGEST = 2**63 - 1  # a BIGINT
_LONGEST_MS = 2**53 / 1e6  # 104 days


def whole(key: str, value: Any) -> int:
    """Returns an integer that a BIGINT holds; JSON has some as texts. Raises ValueError."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            found = int(value)
        except (ValueError, OverflowError):
            found = None
        if found is not None and abs(found) <= LARGEST:
            return found
    raise ValueError(f"{key} is {_short(value)}, not a whole number below 2^63")


def number(key: str, value: Any) -> float | None:
    """Returns a duration from ms, None for None. Raises ValueError."""
    if value is None:
        return None
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and abs(value) < _LONGEST_MS
    ):
        return float(value)
    raise ValueError(f"{key} is {_short(value)}, not a number of milliseconds")


def ints(key: str, values: Iterable[Any]) -> tuple[int, ...]:
    """Returns integers. Raises ValueError."""
    if isinstance(values, str | bytes | dict):
        raise ValueError(f"{key} is {_short(values)}, not a list of numbers")
    return tuple(whole(key, value) for value in values)


def text(value: str) -> str:
    """Returns a text that can be stored: lone surrogates are escaped."""
    return value if value.isascii() else as_text(value)


def _short(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
