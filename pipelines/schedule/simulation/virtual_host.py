"""Host threads on a virtual clock: generators that yield what they wait for, resumed in a fixed order.

A thread yields an integer (sleep until that time, ns) or a Flag (wait until it is set). Two threads that can resume at
the same time do so in the order in which they became ready, so every run is the same.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import heappop, heappush

Thread = Generator["int | Flag", None, None]


class DeadlockError(RuntimeError):
    """Every thread waits for something that only another waiting thread could do."""


@dataclass(slots=True, eq=False)
class Flag:
    """Something that happens once; `what` names it in a deadlock message."""

    what: str
    is_set: bool = False
    waiting: list[tuple[str, Thread]] = field(default_factory=list)


class VirtualHost:
    """The threads and the clock they share."""

    def __init__(self) -> None:
        self.now = 0
        self._able: list[tuple[int, int, str, Thread]] = []
        self._count = 0
        self._waiting: dict[str, Flag] = {}

    def start(self, name: str, thread: Thread) -> None:
        """Start a thread, ready to run now. Names are unique."""
        self._push(self.now, name, thread)

    def set(self, flag: Flag) -> None:
        """Set a flag: all its waiters can resume now."""
        flag.is_set = True
        for name, thread in flag.waiting:
            del self._waiting[name]
            self._push(self.now, name, thread)
        flag.waiting.clear()

    def run(self) -> None:
        """Run until every thread has returned. Raises DeadlockError if some never do; the message says what each waits
        for.
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
        for wish in thread:
            if isinstance(wish, Flag):
                if not wish.is_set:
                    wish.waiting.append((name, thread))
                    self._waiting[name] = wish
                    return
            elif wish > self.now:
                self._push(wish, name, thread)
                return
