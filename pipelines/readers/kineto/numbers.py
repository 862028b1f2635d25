"""Checks the numbers of a trace against the ranges of the lake's columns."""

from __future__ import annotations

from typing import Any

LARGEST = 2**63 - 1  # a BIGINT
# Times lie between the negative and this value (1824 to 2115), durations within 104 days, so the sum of two times, or
# of a time and a duration, does not overflow. sql/ingest/traces/events.sql has the same bounds. The times of one file lie
# within 104 days, so that models can multiply by a percentage, or sum over some hundred events.
LATEST_NS = 2**62 - 2**53
LONGEST_NS = 2**53


def base_time(metadata: dict[str, Any]) -> int | None:
    """Returns baseTimeNanoseconds, to which event times are relative, ns since the epoch; None if it cannot be used."""
    found = whole(metadata.get("baseTimeNanoseconds"))
    return found if found is not None and abs(found) <= LATEST_NS else None


def whole(value: Any) -> int | None:
    """Returns a metadata value as an integer; None if it is not one or does not fit a BIGINT."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: of an infinity
        return None
    return found if -LARGEST <= found <= LARGEST else None
