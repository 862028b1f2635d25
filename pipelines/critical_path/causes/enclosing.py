"""Lookup of the event that encloses a time on a host thread, among a few events such as an optimizer's steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.critical_path.graph.stack_order import Ints


@dataclass(frozen=True)
class Enclosing:
    """Intervals of host threads with the event (mark) that encloses each, sorted by thread and time.

    `mark` encloses the thread's times from `at` to the next `at`. It is an index of an event, or -1 if no event
    encloses these times.
    """

    thread: Ints
    at: Ints
    mark: Ints

    @classmethod
    def of(cls, thread: Ints, start: Ints, end: Ints, rank: Ints) -> Enclosing:
        """Build from marks (n,).

        If several marks enclose a time, the mark with the lowest rank wins. Among equal ranks, the outermost wins.
        """
        order = np.lexsort((-end, start, thread))
        starts, ends, ranks = start.tolist(), end.tolist(), rank.tolist()
        threads, ats, marks = [], [], []
        for indices in np.split(order, np.flatnonzero(np.diff(thread[order])) + 1) if len(order) else ():
            for at_ns, mark in _stretches(indices.tolist(), starts, ends, ranks):
                threads.append(thread[indices[0]])
                ats.append(at_ns)
                marks.append(mark)
        return cls(*(np.array(column, dtype=np.int64) for column in (threads, ats, marks)))

    def at_times(self, thread: Ints, at: Ints) -> Ints:
        """Return the mark that encloses each time (m,) on its thread, or -1 if no mark encloses the time."""
        if not len(self.at):
            return np.full(len(at), -1, dtype=np.int64)
        # One search for all threads, with their times shifted so that threads do not overlap.
        numbers = np.unique(self.thread)
        begin, length = self.at.min(), self.at.max() - self.at.min() + 2
        number = np.minimum(np.searchsorted(numbers, thread), len(numbers) - 1)
        starts = np.searchsorted(numbers, self.thread) * length + self.at - begin + 1
        queries = number * length + np.clip(at - begin + 1, 0, length - 1)
        index = np.searchsorted(starts, queries, side="right") - 1
        return np.where((index >= 0) & (self.thread[index] == thread), self.mark[index], -1)


def _stretches(marks: list[int], start: list[int], end: list[int], rank: list[int]) -> list[tuple[int, int]]:
    """Return the times at which a thread's enclosing mark changes, ascending, each with the new mark (-1: none)."""
    changes: list[tuple[int, int]] = []
    open_: list[tuple[int, int]] = []  # (end, the enclosing mark), the innermost last

    def close(until: int) -> None:
        while open_ and open_[-1][0] <= until:
            ended, _ = open_.pop()
            changes.append((ended, open_[-1][1] if open_ else -1))

    for mark in marks:
        close(start[mark])
        held = open_[-1][1] if open_ else -1
        if held < 0 or rank[mark] < rank[held]:
            held = mark
        # A mark that starts inside the enclosing mark but ends after it is cut at the enclosing mark's end.
        ends = min(end[mark], open_[-1][0]) if open_ else end[mark]
        open_.append((ends, held))
        changes.append((start[mark], held))
    close(np.iinfo(np.int64).max)
    return changes
