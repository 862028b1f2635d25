"""Drag: how much shorter the longest path gets if an event takes no time. Exact, and computed mostly in numpy.

Let W be the time that the event has on the path. Without it, the path itself is W shorter. So the drag is less than W
only if another path takes over, and only a path that was less than W shorter can. For each chain of the path on which
the event has time, `bypass` returns how much shorter the longest path without that chain is. If all bypasses are at
least W, the drag is W. If one bypass is below W, that path is the only rival. The rival is shorter by the bypass, and
by the event's time on the path's other chains (W minus this chain's share). The drag is at most this sum. Every other
event (few in a real trace) is measured by another sweep over the chains near the path, from the event's first edge to
its last. Paths that are shorter by at least the event's time are not rivals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.base.groups import in_groups
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.longest.reach import Reach, bypass

_AT_ONCE = 1 << 18
"""Approximate number of chains per sweep."""


@dataclass(frozen=True)
class Shares:
    """The time of events on chains, one row per event and chain, sorted by event: event number, chain, ns."""

    event: Ints
    chain: Ints
    weight: Ints


def drags(reach: Reach, edge: Ints, event: Ints, weight: Ints, n_events: int) -> Ints:
    """Return the drag of each event, ns.

    The drag is the path's length minus the length with all edges of the event at weight 0. Edge `edge[i]` with
    `weight[i]` belongs to event `event[i]` < n_events. A drag is negative only if the event has edges of negative
    weight.
    """
    shares = _shares(reach, edge, event, weight)
    on_path = np.full(len(reach.slack), -1)
    on_path[reach.path] = np.arange(len(reach.path))
    path_index = on_path[shares.chain]
    negative = np.bincount(event[weight < 0], minlength=n_events) > 0
    on_path_ns = np.zeros(n_events, dtype=np.int64)  # W
    np.add.at(on_path_ns, shares.event[path_index >= 0], shares.weight[path_index >= 0])
    # Removing an event's negative edges lengthens a path. So a rival may be shorter by their sum in addition.
    limit = on_path_ns.copy()
    np.subtract.at(limit, event[weight < 0], weight[weight < 0])
    matters = (reach.slack[shares.chain] < limit[shares.event]) & (shares.weight != 0)
    loses = bypass(reach)[path_index]
    rivals = matters & (path_index >= 0) & (loses < limit[shares.event])
    n_rivals = np.bincount(shares.event[rivals], minlength=n_events)
    elsewhere = np.bincount(shares.event[matters & (path_index < 0)], minlength=n_events) > 0
    drag = on_path_ns.copy()
    single_rival = np.flatnonzero(rivals & (n_rivals == 1)[shares.event])
    drag[shares.event[single_rival]] = np.minimum(
        on_path_ns[shares.event[single_rival]],
        on_path_ns[shares.event[single_rival]] - shares.weight[single_rival] + loses[single_rival],
    )
    hard = np.flatnonzero((limit > 0) & (elsewhere | negative | (n_rivals > 1)))
    if len(hard):
        drag[hard] = _swept(reach, shares, hard, limit, matters)
    return drag


def _shares(reach: Reach, edge: Ints, event: Ints, weight: Ints) -> Shares:
    chain = reach.chain_of[edge]
    order = np.lexsort((chain, event))
    event, chain, weight = event[order], chain[order], weight[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (event[1:] != event[:-1]) | (chain[1:] != chain[:-1])
    first = np.flatnonzero(new)
    summed = np.add.reduceat(weight, first) if len(first) else weight
    return Shares(event[first], chain[first], summed)


def _swept(reach: Reach, shares: Shares, events: Ints, limit: Ints, matters: np.ndarray) -> Ints:
    """Return the drags of some events. Each is computed by a sweep over the chains near the path.

    The sweep of an event covers the time from the first to the last chain on which the event has time. The sweeps of
    many events are combined into one sweep over a graph of disjoint parts.
    """
    position, chains = _by_time(reach), reach.chains
    crossing = _Crossing(reach, position, int(limit[events].max()))
    bounds = (np.searchsorted(shares.event, events, side).tolist() for side in ("left", "right"))

    def parts() -> Iterator[tuple[tuple[int, int, Ints, Ints], int]]:
        for number, (first, past) in enumerate(zip(*bounds, strict=True)):
            rows = first + np.flatnonzero(matters[first:past])
            if not len(rows):
                continue
            own_chains = shares.chain[rows]
            end = int(position[chains.dst[own_chains]].max())
            these = crossing.between(int(position[chains.src[own_chains]].min()), end, int(limit[events[number]]))
            order = np.argsort(these)
            weight = chains.weight[these]
            weight[order[np.searchsorted(these, own_chains, sorter=order)]] -= shares.weight[rows]
            yield (number, end, these, weight), len(these)

    result = np.zeros(len(events), dtype=np.int64)
    for group in in_groups(parts(), _AT_ONCE):
        numbers, *columns = zip(*group, strict=True)
        result[[*numbers]] = reach.length - _lengths(reach, position, *columns)
    return result


def _lengths(
    reach: Reach, position: Ints, ends: Sequence[int], chains: Sequence[Ints], weights: Sequence[Ints]
) -> Ints:
    """Return the length of the longest path through each part of the combined graph, ns.

    `ends` is the position at which each part ends. `chains` are the chains of each part, and `weights` their weights.
    The distances of `reach` to nodes before a part, and from nodes after the part, stay valid.
    """
    part, k = np.repeat(np.arange(len(ends)), [len(these) for these in chains]), len(position)
    these, weight = np.concatenate(chains), np.concatenate(weights)
    keys = [part * k + nodes[these] for nodes in (reach.chains.src, reach.chains.dst)]
    unique_keys, node_index = np.unique(np.concatenate(keys), return_inverse=True)
    part_of, node = np.divmod(unique_keys, k)
    graph = ArrayGraph(unique_keys, node_index[: len(these)], node_index[len(these) :], weight)
    through = graph.forward(weight, begin=reach.ahead[node]) + reach.behind[node]
    behind = position[node] >= np.array(ends)[part_of]
    length = np.zeros(len(ends), dtype=np.int64)
    np.maximum.at(length, part_of[behind], through[behind])
    return length


def _by_time(reach: Reach) -> Ints:
    """Return a position of every node (k,) that increases along every chain, as generations do.

    Generations are a poor measure of time. Threads and streams have different numbers of nodes in the same time, so one
    event may span most generations of a long trace. If no weight is negative, the longest distance to a node also
    increases along every chain, and approximates the node's time.
    """
    if (reach.chains.weight < 0).any():
        return reach.place
    position = np.empty(len(reach.place), dtype=np.int64)
    position[np.lexsort((reach.place, reach.ahead))] = np.arange(len(position))
    return position


class _Crossing:
    """A lookup of the chains with slack below a limit that span a range of positions.

    Chains are sorted by size class (1, below 4, below 8, … positions), then by start. So the chains that start before a
    range and reach into it are a slice of each class.
    """

    def __init__(self, reach: Reach, place: Ints, limit: int) -> None:
        begin, end = place[reach.chains.src], place[reach.chains.dst]
        near = np.flatnonzero(reach.slack < limit)
        size = np.frexp((end - begin)[near].astype(float))[1]
        order = np.lexsort((begin[near], size))
        self._chain, self._size = near[order], size[order]
        self._begin, self._end, self._slack = begin[self._chain], end[self._chain], reach.slack[self._chain]
        classes, first = np.unique(self._size, return_index=True)
        past = np.append(first[1:], len(near))
        self._classes = list(zip(classes.tolist(), first.tolist(), past.tolist(), strict=True))

    def between(self, begin: int, end: int, limit: int) -> Ints:
        """Return the chains with slack below `limit` that start before `end` and end after `begin`, in order of start."""
        parts = []
        for size, first, past in self._classes:
            low, high = np.searchsorted(self._begin[first:past], (begin - (1 << size) + 1, end)).tolist()
            parts.append(np.arange(first + low, first + high))
        index = np.concatenate(parts)
        index = index[(self._end[index] > begin) & (self._slack[index] < limit)]
        return self._chain[index[np.argsort(self._begin[index], kind="stable")]]
