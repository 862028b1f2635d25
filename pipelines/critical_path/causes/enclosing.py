"""Which of a few events, such as an optimizer's steps, encloses a time on a host thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.critical_path.graph.stack_order import Ints


@dataclass(frozen=True)
class Enclosing:
    """Stretches of threads in order of thread and time: from each `at` on, `mark` (-1: none) encloses the thread's times."""

    thread: Ints
    at: Ints
    mark: Ints

    @classmethod
    def of(cls, thread: Ints, start: Ints, end: Ints, rank: Ints) -> Enclosing:
        """Takes marks (n,). Where several enclose a time, the one with the lowest rank does, of equal ones the outermost."""
        order = np.lexsort((-end, start, thread))
        starts, ends, ranks = start.tolist(), end.tolist(), rank.tolist()
        threads, ats, marks = [], [], []
        for of in np.split(order, np.flatnonzero(np.diff(thread[order])) + 1) if len(order) else ():
            for at, mark in _stretches(of.tolist(), starts, ends, ranks):
                threads.append(thread[of[0]])
                ats.append(at)
                marks.append(mark)
        return cls(*(np.array(column, dtype=np.int64) for column in (threads, ats, marks)))

    def at_times(self, thread: Ints, at: Ints) -> Ints:
        """Returns the mark around each time (m,), -1 for none."""
        if not len(self.at):
            return np.full(len(at), -1, dtype=np.int64)
        # One search for all threads: their times one behind the other.
        numbers = np.unique(self.thread)
        begin, length = self.at.min(), self.at.max() - self.at.min() + 2
        number = np.minimum(np.searchsorted(numbers, thread), len(numbers) - 1)
        known = np.searchsorted(numbers, self.thread) * length + self.at - begin + 1
        asked = number * length + np.clip(at - begin + 1, 0, length - 1)
        place = np.searchsorted(known, asked, side="right") - 1
        return np.where((place >= 0) & (self.thread[place] == thread), self.mark[place], -1)


def _stretches(of: list[int], start: list[int], end: list[int], rank: list[int]) -> list[tuple[int, int]]:
    """Returns where another mark begins to hold on a thread: (time, mark or -1), in order of time."""
    found: list[tuple[int, int]] = []
    open_: list[tuple[int, int]] = []  # (end, the mark that holds), the innermost last

    def close(until: int) -> None:
        while open_ and open_[-1][0] <= until:
            ended, _ = open_.pop()
            found.append((ended, open_[-1][1] if open_ else -1))

    for mark in of:
        close(start[mark])
        held = open_[-1][1] if open_ else -1
        if held < 0 or rank[mark] < rank[held]:
            held = mark
        # One that ends after the one around it (they cross) is cut.
        ends = min(end[mark], open_[-1][0]) if open_ else end[mark]
        open_.append((ends, held))
        found.append((start[mark], held))
    close(np.iinfo(np.int64).max)
    return found
