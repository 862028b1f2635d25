"""Times as people read them."""

from __future__ import annotations


def time_of(ns: float) -> str:
    """Formats a time with three digits: `12.3 us`, `242 ms`, `1.24 s`; `3,120 s`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        value = ns / size
        if abs(value) >= 0.9995 or unit == "us":
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:,.{digits}f} {unit}"
    raise AssertionError(ns)
