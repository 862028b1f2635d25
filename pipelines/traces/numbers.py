"""Numbers that a trace gives, and whether the lake's columns can hold them."""

from __future__ import annotations

from typing import Any

LARGEST = 2**63 - 1  # a BIGINT
# Times lie between the negative and this (1824 to 2115), durations within 104 days: two times, or a time and a
# duration, then add up without an overflow. sql/ingest/events.sql has the same bounds. And the times of one file lie
# within 104 days, so that what models multiply by a percentage, or sum over some hundred of events, fits as well.
LATEST_NS = 2**62 - 2**53
LONGEST_NS = 2**53


def base_time(metadata: dict[str, Any]) -> int | None:
    """baseTimeNanoseconds: what the times of events are relative to, ns since the epoch; None if it cannot be used."""
    found = whole(metadata.get("baseTimeNanoseconds"))
    return found if found is not None and abs(found) <= LATEST_NS else None


def whole(value: Any) -> int | None:
    """The whole number that a value of the metadata is, None for what is none or does not fit a BIGINT."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: of an infinity
        return None
    return found if -LARGEST <= found <= LARGEST else None
