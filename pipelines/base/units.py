"""Human-readable numbers, with the same units, digits and spelling in all interfaces."""

from __future__ import annotations

import math
import re

MINUS = "\N{MINUS SIGN}"


def time(ns: float) -> str:
    """Return a time as text: `12.3 us`, `4.56 ms`, `1.23 s`."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if abs(ns) >= 0.99995 * size:  # rounding must not show 1,000.0 us
            return f"{ns / size:,.2f} {unit}"
    return f"{ns / 1e3:,.1f} us"


def nanoseconds(text: str) -> int | None:
    """Return a time such as `12.3ms`, `900us` or `1.2s` in ns, or None for any other text and for 0."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|ms|us|ns)", text.strip())
    if match is None:
        return None
    return round(float(match[1]) * {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}[match[2]]) or None


def rounded_time(ns: float) -> str:
    """Return an approximate time with two digits: `37 ms`, `2.1 ms`, `130 us`."""
    if abs(ns) < 1e3:  # below 1 us, `time` shows one digit anyway
        return time(ns)
    rounded_ns = round(ns, 1 - math.floor(math.log10(abs(ns))))
    number, unit = time(rounded_ns).split(" ")
    value = float(number.replace(",", ""))
    return f"{value:,.{1 if abs(value) < 10 else 0}f} {unit}"


def time_us(us: float) -> str:
    """Return a time in us as text, in the form of `time`."""
    return time(1000 * us)


def difference(ns: float) -> str:
    """Return a difference of times: `+1.20 ms`, with a true minus sign, or `0`."""
    return f"{'+' if ns > 0 else MINUS}{time(abs(ns))}" if ns else "0"


def size(n_bytes: float) -> str:
    """Return bytes as text: `512 B`, `1.50 MiB`, `79.10 GiB`."""
    for unit, unit_bytes in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(n_bytes) >= 0.999995 * unit_bytes:  # rounding must not show 1,024.00 KiB
            return f"{n_bytes / unit_bytes:,.2f} {unit}"
    return f"{n_bytes:,.0f} B"


def count(value: float) -> str:
    """Return an integer with separators, or with an SI prefix from a million on."""
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= 0.999995 * factor:  # rounding must not show 1,000.00 M
            return f"{value / factor:,.2f} {prefix}"
    return f"{value:,.0f}"


def times(n: int) -> str:
    """Return a number of runs as text: `once`, `1,234 times`."""
    return "once" if n == 1 else f"{n:,} times"


def counted(n: int, noun: str) -> str:
    """Return a number of things as text: `1 file`, `1,234 files`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def percent(value: float) -> str:
    """Return a percentage as text with one decimal."""
    return f"{value:.1f} %"


def share(value: float) -> str:
    """Return a ratio (1 is 100 %) as a percentage."""
    return percent(100 * value)


def ratio(value: float) -> str:
    """Return a plain number as text with two decimals."""
    return f"{value:.2f}"


def number(value: float) -> str:
    """Return a number with separators, six or more significant digits and no exponent: `2,252,910`, `0.0123457`."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(5 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
