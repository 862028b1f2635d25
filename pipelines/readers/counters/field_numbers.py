"""Conversion of a counter file's text fields to numbers."""

from __future__ import annotations

import math
import re

from pipelines.readers.inputs.faults import BadValue, shown

_LARGEST = 2**63 - 1  # a BIGINT
_COUNTER_BITS = 64
_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")  # as ncu writes numbers in most locales
_WHOLE = re.compile(r"\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def whole(name: str, text: str) -> int:
    """Return the integer in a field's text. Raise BadValue unless it is from 0 to 2^63 - 1."""
    if _WHOLE.fullmatch(text) and len(text) <= 20 and (value := int(text)) <= _LARGEST:
        return value
    raise BadValue(f"{name} is {shown(text)}, not a whole number below 2^63")


def is_number(text: str) -> bool:
    """Return whether a text has the form of a number, with or without commas between thousands."""
    return bool(_NUMBER.fullmatch(text) or _GROUPED.fullmatch(text))


def number(name: str, text: str) -> float:
    """Return a counter's value from its text.

    Raise BadValue if the text is not a number, or the number exceeds 64 bits.
    """
    if not is_number(text):
        raise BadValue(f"{name} is {shown(text)}, not a number")
    value = float(text.replace(",", ""))
    if not math.isfinite(value) or abs(value) >= 2.0**_COUNTER_BITS:
        raise BadValue(f"{name} is {shown(text)}, more than {_COUNTER_BITS} bits hold")
    return value
