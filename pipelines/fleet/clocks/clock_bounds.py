"""Hard bounds of clock offsets: nobody leaves a collective before everybody has arrived.

For two ranks of an instance i, o_a - o_b <= end[a, i] - start[b, i]; chains of ranks give further bounds, so they are
lengths of shortest paths. Each instance is a hub between those who leave it and those who arrive: a pass over all
kernels instead of all pairs of ranks.
"""

from __future__ import annotations

import numpy as np

from pipelines.fleet.collectives.entries import Entries


def bounds_of(
    entries: Entries, starts: np.ndarray, ends: np.ndarray, bounded: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns the lowest and highest offset of each rank to the first, (ranks,), infinite where nothing bounds it; and
    by how much the bounds contradict each other, 0.0 where they do not.

    starts, ends: (entries,) ns on the ranks' own clocks. bounded: (instances,), those that count.
    """
    some, places = entries.of_instances(bounded)
    starts, ends = starts[places], ends[places]
    if _contradict(some, starts, ends):
        limit = _all_pairs(some, starts, ends)
        return -limit[0, :], limit[:, 0], float(max(0.0, -np.diag(limit).min()))
    first = np.full(entries.n_ranks, np.inf)
    first[0] = 0.0
    down, _ = _shortest(some, ends, -starts, first)
    up, _ = _shortest(some, -starts, ends, first)
    return -down, up, 0.0


def _shortest(some: Entries, into: np.ndarray, out: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, bool]:
    """Returns the shortest distances (ranks,) from those known, and whether they are final: false where a cycle is
    negative. into, out: the weights of an entry to its instance and back.
    """
    for _ in range(some.n_ranks + 1):
        at_hub = some.by_instance.least(known[some.rank] + into, np.inf)
        found = np.minimum(known, some.by_rank.least(at_hub[some.instance] + out, np.inf))
        if np.array_equal(found, known):
            return known, True
        known = found
    return known, False


def _contradict(some: Entries, starts: np.ndarray, ends: np.ndarray) -> bool:
    return not _shortest(some, ends, -starts, np.zeros(some.n_ranks))[1]


def _all_pairs(some: Entries, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns (ranks, ranks): the upper bound of o_a - o_b at [a, b], over all chains of ranks (Floyd-Warshall): needed
    only to say how large a contradiction is.
    """
    limit = np.full((some.n_ranks, some.n_ranks), np.inf)
    for part in np.split(some.by_instance.order, np.cumsum(some.by_instance.size)[:-1]):
        if len(part):
            pairs = np.ix_(some.rank[part], some.rank[part])
            limit[pairs] = np.minimum(limit[pairs], ends[part][:, None] - starts[part][None, :])
    np.fill_diagonal(limit, 0.0)
    for via in range(some.n_ranks):
        limit = np.minimum(limit, limit[:, via, None] + limit[None, via, :])
    return limit
