"""Times of packets → ns on one clock: the trace's, or where a packet names another one, by snapshots of the clocks.

https://perfetto.dev/docs/concepts/clock-sync: clocks 64 to 127 belong to a packet sequence, the others to the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_OWN = range(64, 128)
BOOT = 6  # BUILTIN_CLOCK_BOOTTIME, the trace's clock unless it says otherwise


@dataclass
class _Clock:
    ns: int  # at the snapshot, on the clock itself
    trace_ns: int
    unit_ns: int
    is_incremental: bool


class Clocks:
    """What snapshots have said."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Clock] = {}

    def add(self, sequence: int, snapshot: Any) -> None:
        """Take over a ClockSnapshot."""
        primary = snapshot.primary_trace_clock or BOOT
        now = next((one.timestamp for one in snapshot.clocks if one.clock_id == primary), None)
        if now is None:
            return
        for one in snapshot.clocks:
            unit = one.unit_multiplier_ns or 1
            key = self._key(sequence, one.clock_id)
            self._known[key] = _Clock(one.timestamp * unit, now, unit, one.is_incremental)

    def ns(self, sequence: int, clock: int | None, timestamp: int) -> int | None:
        """Returns the time, ns; None if the clock is not known. `clock` None: the trace's clock."""
        if clock is None:
            return timestamp
        known = self._known.get(self._key(sequence, clock))
        if known is None:
            return timestamp if clock == BOOT else None
        value = timestamp * known.unit_ns
        if known.is_incremental:
            step, value = value, known.ns + value
            known.ns, known.trace_ns = value, known.trace_ns + step
        return known.trace_ns + value - known.ns

    def _key(self, sequence: int, clock: int) -> tuple[int, int]:
        return (sequence if clock in _OWN else 0, clock)
