"""How much shorter a window is without a cause: its graph retimed with the cause's edges at nothing, or at half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.critical_path.causes.edge_causes import CAUSES, Flags, Found
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints

_NEVER = -(1 << 60)  # the weight of a wait that is gone


@dataclass(frozen=True)
class Rows:
    """The causes of a window (r,), largest first; times in ns.

    `duration` is on the path, `idle` the part of it in which no GPU work ran, `exposed` that in which nothing computed, `inferred` the
    part that follows from waits that no event shows. `saves`, `halved_saves` and `all_saves` (without all rows of the same cause) are what the window would be
    shorter by; -1 where that was not computed. `times`: how many events have some of the time; `instance`: the one with most.
    """

    cause: Ints
    named_after: Ints
    number: Ints
    duration: Ints
    idle: Ints
    exposed: Ints
    times: Ints
    instance: Ints
    inferred: Ints
    saves: Ints
    halved_saves: Ints
    all_saves: Ints


MOST, LEAST_PERCENT = 8, 1
"""How many rows of a window are retimed, and how much of it they have at least."""
_EDGES = 24_000_000
"""Edges that are looked at to retime a window, over all its rows: of a very long one fewer rows are retimed."""


@dataclass(frozen=True)
class Shares:
    """What edges belong to (m,): the row that is to be retimed (-1: none) and the cause; and of unneeded synchronizations
    the edges that wait, those that are their own time, and whose (the numbers of their names). `freed`: edges that wait for
    nothing without the edges `freed_with`.
    """

    row: Ints
    cause: Ints
    waits: Ints
    waits_of: Ints
    spent: Ints
    spent_of: Ints
    freed: Ints
    freed_with: Ints


def path_rows(
    weight: Ints, path: Ints, found: Found, idle: Ints, exposed: Ints, inferred: Flags
) -> tuple[Rows, Shares]:
    """Returns the causes of the path (places of its edges, in order), not yet retimed, and what is needed for that.

    `weight` and `inferred` (waits that no event shows) are of all edges (m,), `idle` and `exposed` the parts of each edge of the
    path in which no GPU work ran, and in which nothing computed.
    """
    key = (found.cause.astype(np.int64) * 4 + found.named_after) << 40 | (found.number & ((1 << 40) - 1))
    timed = weight[path] > 0
    on_path = path[timed]
    keys, first, row = np.unique(key[on_path], return_index=True, return_inverse=True)
    cause, named_after, number = (
        c[on_path[first]].astype(np.int64) for c in (found.cause, found.named_after, found.number)
    )
    time = weight[on_path]
    parts = (time, idle[timed], exposed[timed], time * inferred[on_path])
    duration, idle, exposed, guessed = (np.bincount(row, of, minlength=len(keys)).astype(np.int64) for of in parts)
    instance, times = _instances(row, found.instance[on_path], time, len(keys))
    order = np.lexsort((keys, -duration))
    unknown = np.full((3, len(keys)), -1, dtype=np.int64)
    of_path = (cause, named_after, number, duration, idle, exposed, times, instance, guessed)
    rows = Rows(*(column[order] for column in of_path), *unknown)
    place = np.minimum(np.searchsorted(keys, key), max(len(keys) - 1, 0))
    rank = np.empty(len(keys), dtype=np.int32)
    rank[order] = np.arange(len(keys))
    of_edges = np.where(keys[place] == key, rank[place], -1) if len(keys) else np.full(len(key), -1)
    waits, spent = np.flatnonzero(found.cut >= 0), np.flatnonzero(found.spent >= 0)
    of_edges = of_edges.astype(np.int32)
    return rows, Shares(
        of_edges, found.cause, waits, found.cut[waits], spent, found.spent[spent], found.freed, found.freed_with
    )


def _instances(row: Ints, instance: Ints, weight: Ints, n: int) -> tuple[Ints, Ints]:
    """Returns for each row the event with most of its time, and how many events have some."""
    wide = int(instance.max(initial=0)) + 1
    pairs, place = np.unique(row * wide + instance, return_inverse=True)
    of, time = pairs // wide, np.bincount(place, weight, minlength=len(pairs))
    order = np.lexsort((-time, of))
    first = np.searchsorted(of[order], np.arange(n))
    return pairs[order[first]] % wide, np.bincount(of, minlength=n)


def retime(graph: ArrayGraph, rows: Rows, of: Shares) -> None:
    """Fill in what the rows save, largest first. Raises GraphHasCycle."""
    length = int(rows.duration.sum())
    asked = np.flatnonzero(rows.duration[:MOST] * 100 >= LEAST_PERCENT * max(length, 1)).tolist()
    window = Retimed(graph, of, length)
    left = max(_EDGES // max(len(graph.src), 1), len(asked))
    for one in asked:  # all of a cause is what people are told first
        same = np.flatnonzero(rows.cause == rows.cause[one])
        if rows.all_saves[one] < 0 and left > 0:
            rows.all_saves[same] = window.without_cause(int(rows.cause[one]))
            left -= 1
            if _is_all(of, one, rows):
                rows.saves[one] = rows.all_saves[one]
    for one in asked:
        if rows.saves[one] < 0 and left > 0:
            rows.saves[one] = window.without_row(one, int(rows.cause[one]), int(rows.number[one]))
            left -= 1
    for one in asked:
        if CAUSES[rows.cause[one]] != "synchronization" and left > 0:
            # Where it is told of a cause, of all of the cause: names that are not on the path, too.
            alone = int((rows.cause == rows.cause[one]).sum()) == 1
            rows.halved_saves[one] = window.with_half(of.cause == rows.cause[one] if alone else of.row == one)
            left -= 1


def _is_all(of: Shares, row: int, rows: Rows) -> bool:
    """Whether a row has all edges of its cause, those that are not on the path among them."""
    cause = rows.cause[row]
    if CAUSES[cause] == "synchronization":
        numbers = np.append(of.waits_of, of.spent_of)
        return bool((numbers == rows.number[row]).all())
    return bool((of.row[of.cause == cause] == row).all())


class Retimed:
    """A graph whose edges belong to causes, and how long it takes (`length`, ns) without one of them."""

    def __init__(self, graph: ArrayGraph, of: Shares, length: int) -> None:
        self.graph, self.of, self.length = graph, of, length
        # Of an end that two edges lead to, one can go.
        leading = np.bincount(graph.dst, minlength=len(graph))
        self.can_go = leading[graph.dst[of.waits]] > 1
        self.can_be_freed = leading[graph.dst[of.freed]] > 1

    def without_cause(self, cause: int) -> int:
        """Returns what the window saves without all rows of a cause, ns."""
        if CAUSES[cause] == "synchronization":
            return self._without_waits(self.of.waits[self.can_go], self.of.spent)
        return self._without(self.of.cause == cause)

    def without_row(self, row: int, cause: int, number: int) -> int:
        """Returns what it saves without a row."""
        if CAUSES[cause] == "synchronization":
            waits = self.of.waits[self.can_go & (self.of.waits_of == number)]
            return self._without_waits(waits, self.of.spent[self.of.spent_of == number])
        return self._without(self.of.row == row)

    def with_half(self, edges: Flags) -> int:
        """Returns what it saves with half of some edges."""
        chosen = np.flatnonzero(edges)
        # As a scenario rounds it.
        return self._less((chosen, np.rint(self.graph.weight[chosen] * 0.5).astype(np.int64)))

    def _without(self, edges: Flags) -> int:
        freed = self.of.freed[self.can_be_freed & edges[self.of.freed_with]]
        edges[freed] = False
        return self._less((np.flatnonzero(edges), 0), (freed, _NEVER))

    def _without_waits(self, waits: Ints, spent: Ints) -> int:
        """The host works on as before, but beside the GPU."""
        return self._less((waits, _NEVER), (spent, 0))

    def _less(self, *changes: tuple[Ints, Ints | int]) -> int:
        """What it takes less with other weights of some edges: in their place while it is retimed, for a copy of all is large."""
        weight = self.graph.weight
        before = [(edges, weight[edges]) for edges, _ in changes]
        for edges, changed in changes:
            weight[edges] = changed
        try:
            return self.length - int(self.graph.forward(weight).max())
        finally:
            for edges, own in before:
                weight[edges] = own
