"""The time that a window saves without a cause: its graph retimed with the cause's edges at zero, or at half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.critical_path.causes.edge_causes import CAUSES, EdgeCauses, Flags
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints

_NEVER = -(1 << 60)  # the weight of a removed wait, ns


@dataclass(frozen=True)
class Rows:
    """The causes of a window (r,), largest first. Times are in ns.

    `duration` is the time on the path. `idle` is its part in which no GPU work ran, `exposed` the part in which no
    kernel computed, and `inferred` the part that follows from waits without an event. `saves`, `halved_saves` and
    `all_saves` (without all rows of the same cause) are how much shorter the window would be, -1 if not computed.
    `times` is the number of events that have some of the time, `instance` the event with the most.
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
"""Maximum numbers of rows and of causes of a window that are retimed, and their minimum share of it, percent."""
_EDGES = 24_000_000
"""Maximum number of edge visits to retime a window's rows and causes. Of a very long window, fewer are retimed."""


@dataclass(frozen=True)
class Shares:
    """The rows and causes that edges belong to (m,).

    `row` is the row (-1: none), `cause` the cause. `waits` are the edges that are waits of unneeded synchronizations,
    `spent` the edges that are their self time. `waits_of` and `spent_of` are the numbers of the synchronizations'
    names. `freed` are waits that do not exist without the edges `freed_with`.
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
    weight: Ints, path: Ints, causes: EdgeCauses, idle: Ints, exposed: Ints, inferred: Flags
) -> tuple[Rows, Shares]:
    """Return the causes of the path, not yet retimed, and the shares that retiming needs.

    `path` contains the indices of its edges, in order. `weight` and `inferred` (waits without an event) are for all
    edges (m,). `idle` is the part of each edge of the path in which no GPU work ran, `exposed` the part in which no
    kernel computed, ns.
    """
    key = (causes.cause.astype(np.int64) * 4 + causes.named_after) << 40 | (causes.number & ((1 << 40) - 1))
    timed = weight[path] > 0
    on_path = path[timed]
    keys, first, row = np.unique(key[on_path], return_index=True, return_inverse=True)
    cause, named_after, number = (
        c[on_path[first]].astype(np.int64) for c in (causes.cause, causes.named_after, causes.number)
    )
    time = weight[on_path]
    parts = (time, idle[timed], exposed[timed], time * inferred[on_path])
    duration, idle, exposed, guessed = (np.bincount(row, part, minlength=len(keys)).astype(np.int64) for part in parts)
    instance, times = _instances(row, causes.instance[on_path], time, len(keys))
    order = np.lexsort((keys, -duration))
    unknown = np.full((3, len(keys)), -1, dtype=np.int64)
    of_path = (cause, named_after, number, duration, idle, exposed, times, instance, guessed)
    rows = Rows(*(column[order] for column in of_path), *unknown)
    index = np.minimum(np.searchsorted(keys, key), max(len(keys) - 1, 0))
    rank = np.empty(len(keys), dtype=np.int32)
    rank[order] = np.arange(len(keys))
    of_edges = np.where(keys[index] == key, rank[index], -1) if len(keys) else np.full(len(key), -1)
    waits, spent = np.flatnonzero(causes.cut >= 0), np.flatnonzero(causes.spent >= 0)
    of_edges = of_edges.astype(np.int32)
    return rows, Shares(
        of_edges, causes.cause, waits, causes.cut[waits], spent, causes.spent[spent], causes.freed, causes.freed_with
    )


def _instances(row: Ints, instance: Ints, weight: Ints, n: int) -> tuple[Ints, Ints]:
    """Return the event with most of the time of each row, and the number of events that have some of it."""
    wide = int(instance.max(initial=0)) + 1
    pairs, pair_index = np.unique(row * wide + instance, return_inverse=True)
    row_of_pair, time = pairs // wide, np.bincount(pair_index, weight, minlength=len(pairs))
    order = np.lexsort((-time, row_of_pair))
    first = np.searchsorted(row_of_pair[order], np.arange(n))
    return pairs[order[first]] % wide, np.bincount(row_of_pair, minlength=n)


def retime(graph: ArrayGraph, rows: Rows, of: Shares) -> None:
    """Retime the window without its largest rows and causes, and set their savings in `rows`. Raises GraphHasCycle.

    At most MOST rows and MOST causes are retimed, fewer in a very long window (_EDGES). Rows that are not retimed keep
    -1.
    """
    length = int(rows.duration.sum())
    row_indices = np.flatnonzero(rows.duration[:MOST] * 100 >= LEAST_PERCENT * max(length, 1)).tolist()
    window = Retimed(graph, of, length)
    retimings_left = max(_EDGES // max(len(graph.src), 1), len(row_indices))
    for row in row_indices:  # whole causes come first, because their savings are printed first
        same = np.flatnonzero(rows.cause == rows.cause[row])
        if rows.all_saves[row] < 0 and retimings_left > 0:
            rows.all_saves[same] = window.without_cause(int(rows.cause[row]))
            retimings_left -= 1
            if _is_all(of, row, rows):
                rows.saves[row] = rows.all_saves[row]
    for row in row_indices:
        if rows.saves[row] < 0 and retimings_left > 0:
            rows.saves[row] = window.without_row(row, int(rows.cause[row]), int(rows.number[row]))
            retimings_left -= 1
    for row in row_indices:
        if CAUSES[rows.cause[row]] != "synchronization" and retimings_left > 0:
            # A row that is its cause's only row represents the cause, including names that are not on the path.
            alone = int((rows.cause == rows.cause[row]).sum()) == 1
            rows.halved_saves[row] = window.with_half(of.cause == rows.cause[row] if alone else of.row == row)
            retimings_left -= 1
    # Causes that are large only as the sum of small rows come last, so that they take no retiming from a row.
    time = np.bincount(rows.cause, rows.duration)
    for cause in np.argsort(-time, kind="stable")[:MOST].tolist():
        same = rows.cause == cause
        is_enough = time[cause] * 100 >= LEAST_PERCENT * max(length, 1)
        if is_enough and retimings_left > 0 and (rows.all_saves[same] < 0).all():
            rows.all_saves[same] = window.without_cause(cause)
            retimings_left -= 1


def _is_all(shares: Shares, row: int, rows: Rows) -> bool:
    """Return whether a row contains all edges of its cause, including edges that are not on the path."""
    cause = rows.cause[row]
    if CAUSES[cause] == "synchronization":
        numbers = np.append(shares.waits_of, shares.spent_of)
        return bool((numbers == rows.number[row]).all())
    return bool((shares.row[shares.cause == cause] == row).all())


class Retimed:
    """A graph whose edges belong to causes, which can be retimed without a cause. `length` is its actual length, ns."""

    def __init__(self, graph: ArrayGraph, of: Shares, length: int) -> None:
        self.graph, self.of, self.length = graph, of, length
        # A wait can be removed only if another edge leads to the same node.
        leading = np.bincount(graph.dst, minlength=len(graph))
        self.can_go = leading[graph.dst[of.waits]] > 1
        self.can_be_freed = leading[graph.dst[of.freed]] > 1

    def without_cause(self, cause: int) -> int:
        """Return the savings without all rows of a cause, ns."""
        if CAUSES[cause] == "synchronization":
            return self._without_waits(self.of.waits[self.can_go], self.of.spent)
        return self._without(self.of.cause == cause)

    def without_row(self, row: int, cause: int, number: int) -> int:
        """Return the savings without a row, ns."""
        if CAUSES[cause] == "synchronization":
            waits = self.of.waits[self.can_go & (self.of.waits_of == number)]
            return self._without_waits(waits, self.of.spent[self.of.spent_of == number])
        return self._without(self.of.row == row)

    def with_half(self, edges: Flags) -> int:
        """Return the savings if `edges` have half their weight, ns."""
        chosen = np.flatnonzero(edges)
        # Round like a scenario does.
        return self._less((chosen, np.rint(self.graph.weight[chosen] * 0.5).astype(np.int64)))

    def _without(self, edges: Flags) -> int:
        freed = self.of.freed[self.can_be_freed & edges[self.of.freed_with]]
        edges[freed] = False
        return self._less((np.flatnonzero(edges), 0), (freed, _NEVER))

    def _without_waits(self, waits: Ints, spent: Ints) -> int:
        """Return the savings without the waits and the synchronizations' self time, ns.

        The host does the same work, concurrently with the GPU.
        """
        return self._less((waits, _NEVER), (spent, 0))

    def _less(self, *changes: tuple[Ints, Ints | int]) -> int:
        """Return the savings with changed weights of some edges, ns.

        The weights are changed in place during the computation, because a copy of all weights is large.
        """
        weight = self.graph.weight
        before = [(edges, weight[edges]) for edges, _ in changes]
        for edges, changed in changes:
            weight[edges] = changed
        try:
            return self.length - int(self.graph.forward(weight).max())
        finally:
            for edges, weights_before in before:
                weight[edges] = weights_before
