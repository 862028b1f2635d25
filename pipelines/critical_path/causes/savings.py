"""How much shorter a window is without a cause: its graph retimed with the cause's edges at nothing, or at half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.causes.edge_causes import CAUSES, Flags, Found
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.sorted_graph import Forest

_NEVER = -(1 << 60)  # the weight of a wait that is gone


@dataclass(frozen=True)
class Rows:
    """The causes of a window (r,), largest first. Times in ns: `duration` on the path, `saves`, `halved_saves` and `all_saves`
    (all rows of the same cause gone) of the window; -1: not computed; `idle` is the part of `duration` in which no GPU work ran. `instance` is the place of the event with the most time,
    `times` how many events have some, `edge` an edge on the path.
    """

    cause: Ints
    named_after: Ints
    number: Ints
    duration: Ints
    idle: Ints
    times: Ints
    instance: Ints
    inferred: Ints
    saves: Ints
    halved_saves: Ints
    all_saves: Ints


MOST, LEAST_PERCENT = 8, 1
"""How many rows of a window are retimed, and how much of it they have at least."""


def cause_rows(graph: ArrayGraph, path: Ints, found: Found, idle: Ints, inferred: Flags) -> Rows:
    """Returns the causes of the path (places of its edges, in order) with what they save; `idle` is the
    part of each edge of the path in which no GPU work ran, `inferred` (m,) marks waits that no event shows. Raises GraphHasCycle.
    """
    key = _keys(found)
    timed = graph.weight[path] > 0
    on_path, idle = path[timed], idle[timed]
    keys, first, row = np.unique(key[on_path], return_index=True, return_inverse=True)
    cause, named_after, number = (
        c[on_path[first]].astype(np.int64) for c in (found.cause, found.named_after, found.number)
    )
    weight = graph.weight[on_path]
    duration = np.bincount(row, weight, minlength=len(keys)).astype(np.int64)
    idle = np.bincount(row, idle, minlength=len(keys)).astype(np.int64)
    instance, times = _instances(row, found.instance[on_path], weight, len(duration))
    guessed = np.bincount(row, weight * inferred[on_path], minlength=len(duration)).astype(np.int64)
    order = np.lexsort((keys, -duration))
    saves = _Savings(graph, found, key, path)
    asked = order[:MOST][duration[order[:MOST]] * 100 >= LEAST_PERCENT * max(duration.sum(), 1)]
    columns = np.full((3, len(duration)), -1, dtype=np.int64)
    for one in asked.tolist():
        columns[0, one], columns[1, one] = saves.of_row(int(cause[one]), int(number[one]), int(keys[one]))
    for one in np.unique(cause[asked]).tolist():
        of = np.flatnonzero(cause == one)
        columns[2, of] = columns[0, of[0]] if len(of) == 1 else saves.of_cause(one)
    of_path = (cause, named_after, number, duration, idle, times, instance, guessed, *columns)
    return Rows(*(column[order] for column in of_path))


def _keys(found: Found) -> Ints:
    """Returns a number for what each edge belongs to: equal ones have equal cause and name."""
    return (found.cause.astype(np.int64) * 4 + found.named_after) << 40 | (found.number & ((1 << 40) - 1))


def _instances(row: Ints, instance: Ints, weight: Ints, n: int) -> tuple[Ints, Ints]:
    """Returns for each row the event with most of its time, and how many events have some."""
    wide = int(instance.max(initial=0)) + 1
    pairs, place = np.unique(row * wide + instance, return_inverse=True)
    of, time = pairs // wide, np.bincount(place, weight, minlength=len(pairs))
    order = np.lexsort((-time, of))
    first = np.searchsorted(of[order], np.arange(n))
    return pairs[order[first]] % wide, np.bincount(of, minlength=n)


class _Savings:
    def __init__(self, graph: ArrayGraph, found: Found, key: Ints, path: Ints) -> None:
        self.graph, self.found, self.key = graph, found, key
        self.length = int(graph.weight[path].sum())
        self._forest: Forest | None = None
        # Of an end that two edges lead to, one can go.
        self.cut = np.where(np.bincount(graph.dst, minlength=len(graph))[graph.dst] > 1, found.cut, -1)

    def of_row(self, cause: int, number: int, key: int) -> tuple[int, int]:
        """Returns what the window saves without a row, and with half of it (-1: there is no half)."""
        if CAUSES[cause] == "synchronization":
            return self._without_waits(self.cut == number, self.found.spent == number), -1
        edges = self.key == key
        return self._scaled(edges, 0), self._scaled(edges, 2)

    def of_cause(self, cause: int) -> int:
        """Returns what the window saves without all rows of a cause."""
        if CAUSES[cause] == "synchronization":
            return self._without_waits(self.cut >= 0, self.found.spent >= 0)
        return self._scaled(self.found.cause == cause, 0)

    def _scaled(self, edges: Flags, by: int) -> int:
        weight = self.graph.weight.copy()
        weight[edges] = weight[edges] // by if by else 0
        return self._less(weight)

    def _without_waits(self, waits: Flags, spent: Flags) -> int:
        """The host works on as before, but beside the GPU."""
        weight = self.graph.weight.copy()
        weight[waits], weight[spent] = _NEVER, 0
        return self._less(weight)

    def _less(self, weight: npt.NDArray[np.int64]) -> int:
        if self._forest is None:
            self._forest = Forest(self.graph)
        return self.length - int(self._forest.distances(weight).at.max())
