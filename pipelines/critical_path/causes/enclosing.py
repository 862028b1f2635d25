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
        threads, ats, marks = [], [], []
        for one in np.unique(thread).tolist():
            of = np.flatnonzero(thread == one)
            of = of[np.lexsort((-end[of], start[of]))]
            for at, mark in _stretches(of.tolist(), start.tolist(), end.tolist(), rank.tolist()):
                threads.append(one)
                ats.append(at)
                marks.append(mark)
        return cls(*(np.array(column, dtype=np.int64) for column in (threads, ats, marks)))

    def at_times(self, thread: Ints, at: Ints) -> Ints:
        """Returns the mark around each time (m,), -1 for none."""
        found = np.full(len(at), -1, dtype=np.int64)
        if not len(self.at):
            return found
        first = np.flatnonzero(np.append(True, np.diff(self.thread) != 0))
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(self.at)], strict=True):
            here = np.flatnonzero(thread == self.thread[begin])
            place = begin + np.searchsorted(self.at[begin:end], at[here], side="right") - 1
            found[here] = np.where(place >= begin, self.mark[np.maximum(place, begin)], -1)
        return found


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
