"""Checks the types of a dump's fields; an error names the field, what it is and what it should be."""

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
_LONG = 1000  # characters of a text that is not kept in memory
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


def ints(key: str, values: Any) -> tuple[int, ...]:
    """Returns integers. Raises ValueError."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{key} is {_short(values)}, not a list of numbers")
    return tuple(whole(key, value) for value in values)


def several(key: str, value: Any) -> Sequence[Any]:
    """Returns a list, which may be absent or null where it is empty. Raises ValueError."""
    if isinstance(value, list | tuple):
        return value
    if not value and not isinstance(value, int | float):
        return ()
    raise ValueError(f"{key} is {_short(value)}, not a list")


def record(key: str, value: Any) -> Mapping[Any, Any]:
    """Returns an object. Raises ValueError."""
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{key} is {_short(value)}, not an object")


def needed(given: Mapping[str, Any], key: str) -> Any:
    """Returns the value of a field that every call has. Raises ValueError."""
    if key not in given:
        raise ValueError(f"{key} is not told")
    return given[key]


def text(value: str) -> str:
    """Returns a text that can be stored and shown: lone surrogates are escaped, what looks like a secret is masked."""
    return _repeated(value) if len(value) < _LONG else _stored(value)


def _stored(value: str) -> str:
    return masked_text(value if value.isascii() else as_text(value), is_name=True)


_repeated = lru_cache(1024)(_stored)  # names of groups and functions stand in each entry


def _short(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:  # too long for repr
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, str | int | float):
        return text(repr(value))[:60]
    return _KINDS.get(type(value), f"a {type(value).__name__}")
