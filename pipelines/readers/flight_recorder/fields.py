"""Type checks for a dump's fields. An error gives the field, its value and the expected type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pipelines.models.sqltext import as_text
from pipelines.readers.secrets import masked_text

LARGEST = 2**63 - 1  # a BIGINT
_MOST_BITS = 192
_KINDS = {list: "a list", tuple: "a list", dict: "an object", bytes: "bytes"}
_LONG = 1000  # texts with at least this many characters are not cached
_LONGEST_MS = 2**53 / 1e6  # 104 days


def whole(key: str, value: Any) -> int:
    """Return the integer in a number or, as in JSON dumps, in a text.

    Raise ValueError unless it is an integer that fits a BIGINT.
    """
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = int(value)
        except (ValueError, OverflowError):
            number = None
        if number is not None and abs(number) <= LARGEST:
            return number
    raise ValueError(f"{key} is {_short(value)}, not a whole number below 2^63")


def number(key: str, value: Any) -> float | None:
    """Return a duration in ms, or None for None. Raise ValueError unless it is a number below 104 days."""
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


def ints(key: str, values: Any) -> tuple[int, ...]:
    """Return a tuple of integers. Raise ValueError unless `values` is a list of integers."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{key} is {_short(values)}, not a list of numbers")
    return tuple(whole(key, value) for value in values)


def several(key: str, value: Any) -> Sequence[Any]:
    """Return a list, or an empty tuple if the field is absent, null or otherwise empty.

    Raise ValueError for any other value.
    """
    if isinstance(value, list | tuple):
        return value
    if not value and not isinstance(value, int | float):
        return ()
    raise ValueError(f"{key} is {_short(value)}, not a list")


def record(key: str, value: Any) -> Mapping[Any, Any]:
    """Return the object in a field. Raise ValueError if the value is not an object."""
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{key} is {_short(value)}, not an object")


def needed(fields: Mapping[str, Any], key: str) -> Any:
    """Return the value of a field that every call has. Raise ValueError if it is missing."""
    if key not in fields:
        raise ValueError(f"{key} is missing")
    return fields[key]


def text(value: str) -> str:
    """Return a text that can be stored and printed, with lone surrogates escaped and apparent secrets masked."""
    return _repeated(value) if len(value) < _LONG else _stored(value)


def _stored(value: str) -> str:
    return masked_text(value if value.isascii() else as_text(value), is_name=True)


_repeated = lru_cache(1024)(_stored)  # each entry repeats names of groups and functions


def _short(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:  # too long for repr
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, str | int | float):
        return text(repr(value))[:60]
    return _KINDS.get(type(value), f"a {type(value).__name__}")
