"""Breakdown of a GPU's time, accumulated while a capture is written, as truth for the temporal breakdown."""

from __future__ import annotations

from dataclasses import dataclass

COMPUTATION, COMMUNICATION, MEMORY = "COMPUTATION", "COMMUNICATION", "MEMORY"


@dataclass(slots=True)
class BreakdownTruth:
    """Nanoseconds of one rank's GPU. Times of a class are the union over its streams. cuda_sync rows do not count."""

    span_ns: int = 0
    busy_ns: int = 0
    idle_ns: int = 0
    compute_ns: int = 0
    communication_ns: int = 0
    memory_ns: int = 0
    exposed_communication_ns: int = 0
    exposed_memory_ns: int = 0


class BusyTime:
    """Sums of unions of intervals in bounded memory.

    `settle` drops the intervals before a time that no later work can precede.
    """

    def __init__(self) -> None:
        self.truth = BreakdownTruth()
        self._open: list[tuple[int, int, str]] = []
        self._first: int | None = None
        self._last = 0

    def add(self, start_ns: int, end_ns: int, kind: str) -> None:
        """Add a GPU activity of class `kind`. Times are true ns."""
        self._open.append((start_ns, end_ns, kind))
        self._first = start_ns if self._first is None else min(self._first, start_ns)
        self._last = max(self._last, end_ns)

    def settle(self, before_ns: int) -> None:
        """Account for all activities before `before_ns`. Later activities must start at or after it."""
        edges = []
        for start, end, kind in self._open:
            edges.append((min(start, before_ns), 1, kind))
            edges.append((min(end, before_ns), -1, kind))
        edges.sort(key=lambda e: e[0])
        running = {COMPUTATION: 0, COMMUNICATION: 0, MEMORY: 0}
        previous = 0
        for time, step, kind in edges:
            self._account(time - previous, running)
            running[kind] += step
            previous = time
        self._open = [(max(s, before_ns), e, k) for s, e, k in self._open if e > before_ns]

    def close(self) -> BreakdownTruth:
        """Account for all activities and return the sums."""
        self.settle(self._last)
        truth = self.truth
        truth.span_ns = self._last - self._first if self._first is not None else 0
        truth.idle_ns = truth.span_ns - truth.busy_ns
        return truth

    def _account(self, length: int, running: dict[str, int]) -> None:
        compute, comm, memory = running[COMPUTATION] > 0, running[COMMUNICATION] > 0, running[MEMORY] > 0
        truth = self.truth
        truth.busy_ns += length * (compute or comm or memory)
        truth.compute_ns += length * compute
        truth.communication_ns += length * comm
        truth.memory_ns += length * memory
        truth.exposed_communication_ns += length * (comm and not compute)
        truth.exposed_memory_ns += length * (memory and not compute and not comm)
