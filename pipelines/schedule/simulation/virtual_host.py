"""Host threads on a virtual clock, as generators that yield their waits and are resumed in a fixed order.

A thread yields an integer (sleep until that time, ns) or a Flag (wait until it is set). Two threads that can resume at
the same time resume in the order in which they became ready, so every run is the same.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import heappop, heappush

Thread = Generator["int | Flag", None, None]


class DeadlockError(RuntimeError):
    """Every remaining thread waits for an action of another waiting thread."""


@dataclass(slots=True, eq=False)
class Flag:
    """An event that happens once. `what` names it in a deadlock message."""

    what: str
    is_set: bool = False
    waiting: list[tuple[str, Thread]] = field(default_factory=list)


class VirtualHost:
    """Threads and the clock that they share."""

    def __init__(self) -> None:
        self.now = 0
        self._able: list[tuple[int, int, str, Thread]] = []
        self._count = 0
        self._waiting: dict[str, Flag] = {}

    def start(self, name: str, thread: Thread) -> None:
        """Start a thread that is ready now. `name` must be unique."""
        self._push(self.now, name, thread)

    def set(self, flag: Flag) -> None:
        """Set a flag and resume all its waiters now."""
        flag.is_set = True
        for name, thread in flag.waiting:
            del self._waiting[name]
            self._push(self.now, name, thread)
        flag.waiting.clear()

    def run(self) -> None:
        """Run until every thread has returned.

        Raise DeadlockError if some threads never return. The message names each such thread and its wait.
        """
        while self._able:
            self.now, _, name, thread = heappop(self._able)
            self._advance(name, thread)
        if self._waiting:
            waits = "; ".join(f"{name} waits for {flag.what}" for name, flag in sorted(self._waiting.items()))
            raise DeadlockError(f"deadlock at {self.now} ns: {waits}")

    def _push(self, at_ns: int, name: str, thread: Thread) -> None:
        self._count += 1
        heappush(self._able, (at_ns, self._count, name, thread))

    def _advance(self, name: str, thread: Thread) -> None:
        for wait in thread:
            if isinstance(wait, Flag):
                if not wait.is_set:
                    wait.waiting.append((name, thread))
                    self._waiting[name] = wait
                    return
            elif wait > self.now:
                self._push(wait, name, thread)
                return
