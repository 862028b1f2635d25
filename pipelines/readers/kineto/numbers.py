"""Bounds of the lake's columns, and checks of a trace's numbers against them."""

from __future__ import annotations

from typing import Any

LARGEST = 2**63 - 1  # of a BIGINT
# Times fall between -LATEST_NS and LATEST_NS (1824 to 2115), and durations are at most 104 days. So the sum of two times,
# or of a time and a duration, does not overflow. sql/ingest/traces/events.sql has the same bounds. The times of one file
# span at most 104 days, so that models can multiply by a percentage, or sum over some hundred events.
LATEST_NS = 2**62 - 2**53
LONGEST_NS = 2**53


def base_time(metadata: dict[str, Any]) -> int | None:
    """Return baseTimeNanoseconds (ns since the epoch), to which event times are relative, or None if it is unusable."""
    base_ns = whole(metadata.get("baseTimeNanoseconds"))
    return base_ns if base_ns is not None and abs(base_ns) <= LATEST_NS else None


def whole(value: Any) -> int | None:
    """Return a metadata value converted to an integer, or None if it cannot be converted or does not fit a BIGINT."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):  # int() raises OverflowError for an infinity
        return None
    return number if -LARGEST <= number <= LARGEST else None
