"""Signals and events of the iterations in flight."""

from __future__ import annotations

from threading import Condition, Lock
from typing import Any

from pipelines.schedule.devices.base import Device
from pipelines.schedule.errors import PipelineError


class Signal:
    """Flag like threading.Event, but cheap to set without waiters. All signals of a slot share one condition."""

    __slots__ = ("_changed", "_set", "_waiting")

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self._set = False
        self._waiting = 0

    def is_set(self) -> bool:
        """Return whether the signal is set."""
        return self._set

    def set(self) -> None:
        """Set the signal and wake all waiters.

        A waiter counts itself before it reads the flag. If it has not counted itself yet, it will see the flag.
        """
        self._set = True
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def clear(self) -> None:
        """Clear the signal."""
        self._set = False

    def wait(self, timeout_s: float) -> bool:
        """Block until the signal is set. Return False after `timeout_s` seconds."""
        if self._set:
            return True
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(self.is_set, timeout_s)
            finally:
                self._waiting -= 1


class Slot:
    """Signals (tasks are submitted) and device events (their work is done) of one iteration. Slots are reused."""

    def __init__(self, names: list[str], device: Device) -> None:
        self.iter_idx = -1  # the iteration that owns the slot
        changed = Condition(Lock())
        self.signals = {name: Signal(changed) for name in names}
        self.events = {name: device.event() for name in names}
        self.callers_stream: Any = None  # the caller's stream if the first tasks must wait for its work, else None
        self.callers_event = device.event()  # the point on that stream for which the first tasks wait
        self.complete = Signal(changed)  # set when every task is submitted
        self._missing: list[str] = []  # one element per task that is not submitted yet

    def begin(self, iter_idx: int) -> None:
        """Assign the slot to an iteration."""
        self.iter_idx = iter_idx
        self.complete.clear()
        for signal in self.signals.values():
            signal.clear()
        self._missing = list(self.signals)

    def submitted(self, name: str) -> None:
        """Wake the waiters for a task. Call this after the task's event is recorded (record before set)."""
        self.signals[name].set()
        self._missing.pop()  # atomic, unlike decrementing a counter
        if not self._missing:
            self.complete.set()

    def abort(self) -> None:
        """Wake all waiters for signals of this slot."""
        for signal in self.signals.values():
            signal.set()
        self.complete.set()

    def unsubmitted(self) -> list[str]:
        """Return the tasks that are not submitted yet."""
        return [name for name, signal in self.signals.items() if not signal.is_set()]


class Slots:
    """Ring of `in_flight` + 1 slots. The extra slot prevents reuse of a slot while a task still reads it.

    At depth D, iteration i-1+D starts when iteration i-1 is retired, but iteration i may still wait for a task of i-1.
    In a ring of D slots, iteration i-1+D would take the slot of i-1 and clear the signal for which i waits. The wait
    would time out, or end on another iteration's event. D+1 slots are enough, because an iteration starts only after
    the iteration `in_flight` before it was retired, and a retired iteration has no waiting tasks.
    """

    def __init__(self, names: list[str], device: Device, in_flight: int, spare: int = 1) -> None:
        self._ring = [Slot(names, device) for _ in range(in_flight + spare)]

    def __len__(self) -> int:
        return len(self._ring)

    def begin(self, iter_idx: int) -> None:
        """Assign the iteration its slot."""
        self._ring[iter_idx % len(self._ring)].begin(iter_idx)

    def of(self, iter_idx: int) -> Slot:
        """Return the iteration's slot. Raise PipelineError if another iteration owns the slot."""
        slot = self._ring[iter_idx % len(self._ring)]
        if slot.iter_idx != iter_idx:
            raise PipelineError(
                f"the signals of iteration {iter_idx} are gone: iteration {slot.iter_idx} uses them now", None, iter_idx
            )
        return slot

    def abort(self) -> None:
        """Wake all waiters."""
        for slot in self._ring:
            slot.abort()

    def reset(self) -> None:
        """Take the slots from all iterations."""
        for slot in self._ring:
            slot.begin(-1)
