"""Conversion of packets' times to ns on the trace's clock, by snapshots of the clocks.

https://perfetto.dev/docs/concepts/clock-sync: clocks 64 to 127 belong to a packet sequence, the others to the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_OWN = range(64, 128)
BOOT = 6  # BUILTIN_CLOCK_BOOTTIME, the default clock of a trace


@dataclass
class _Clock:
    ns: int  # time on this clock at the snapshot
    trace_ns: int
    unit_ns: int
    is_incremental: bool


class Clocks:
    """State of the clocks, from the snapshots so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Clock] = {}

    def add(self, sequence: int, snapshot: Any) -> None:
        """Store the clocks of a ClockSnapshot. Ignore it if it does not contain the trace's clock."""
        primary = snapshot.primary_trace_clock or BOOT
        trace_ns = next((clock.timestamp for clock in snapshot.clocks if clock.clock_id == primary), None)
        if trace_ns is None:
            return
        for clock in snapshot.clocks:
            unit = clock.unit_multiplier_ns or 1
            key = self._key(sequence, clock.clock_id)
            self._known[key] = _Clock(clock.timestamp * unit, trace_ns, unit, clock.is_incremental)

    def ns(self, sequence: int, clock: int | None, timestamp: int) -> int | None:
        """Return the time on the trace's clock, ns, or None if `clock` is unknown. `clock` None is the trace's clock."""
        if clock is None:
            return timestamp
        state = self._known.get(self._key(sequence, clock))
        if state is None:
            return timestamp if clock == BOOT else None
        value = timestamp * state.unit_ns
        if state.is_incremental:
            elapsed_ns, value = value, state.ns + value
            state.ns, state.trace_ns = value, state.trace_ns + elapsed_ns
        return state.trace_ns + value - state.ns

    def _key(self, sequence: int, clock: int) -> tuple[int, int]:
        return (sequence if clock in _OWN else 0, clock)
