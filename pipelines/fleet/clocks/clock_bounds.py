"""Hard bounds of clock offsets. They exist because no rank leaves a collective before all ranks have arrived.

For the offsets o of two ranks a and b in an instance i, o_a - o_b <= end[a, i] - start[b, i]. Chains of ranks give
further bounds, so the bounds are lengths of shortest paths. Each instance is a hub between the ranks that leave it and
the ranks that arrive. A pass therefore visits each kernel, not each pair of ranks.
"""

from __future__ import annotations

import numpy as np

from pipelines.fleet.collectives.entries import Entries


def bounds_of(
    entries: Entries, starts: np.ndarray, ends: np.ndarray, bounded: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the lowest and highest offset of each rank relative to the first rank, and the bounds' contradiction.

    The offsets are (ranks,) ns, infinite if nothing bounds them. The contradiction is in ns, 0.0 without one. starts,
    ends: (entries,) ns on the ranks' own clocks. bounded: (instances,), whether an instance bounds the offsets.
    """
    counted, positions = entries.of_instances(bounded)
    starts, ends = starts[positions], ends[positions]
    if _contradict(counted, starts, ends):
        upper_bound = _all_pairs(counted, starts, ends)
        return -upper_bound[0, :], upper_bound[:, 0], float(max(0.0, -np.diag(upper_bound).min()))
    initial = np.full(entries.n_ranks, np.inf)
    initial[0] = 0.0
    down, _ = _shortest(counted, ends, -starts, initial)
    up, _ = _shortest(counted, -starts, ends, initial)
    return -down, up, 0.0


def _shortest(entries: Entries, into: np.ndarray, out: np.ndarray, distances: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the shortest distances (ranks,) from the initial distances, and whether they are final.

    They are not final if a cycle is negative. into, out: the weights of an entry to its instance and back.
    """
    for _ in range(entries.n_ranks + 1):
        at_hub = entries.by_instance.least(distances[entries.rank] + into, np.inf)
        shorter = np.minimum(distances, entries.by_rank.least(at_hub[entries.instance] + out, np.inf))
        if np.array_equal(shorter, distances):
            return distances, True
        distances = shorter
    return distances, False


def _contradict(entries: Entries, starts: np.ndarray, ends: np.ndarray) -> bool:
    return not _shortest(entries, ends, -starts, np.zeros(entries.n_ranks))[1]


def _all_pairs(entries: Entries, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the upper bound of o_a - o_b at [a, b], (ranks, ranks) ns, over all chains of ranks (Floyd-Warshall).

    Only the size of a contradiction requires it.
    """
    upper_bound = np.full((entries.n_ranks, entries.n_ranks), np.inf)
    for part in np.split(entries.by_instance.order, np.cumsum(entries.by_instance.size)[:-1]):
        if len(part):
            pairs = np.ix_(entries.rank[part], entries.rank[part])
            upper_bound[pairs] = np.minimum(upper_bound[pairs], ends[part][:, None] - starts[part][None, :])
    np.fill_diagonal(upper_bound, 0.0)
    for via in range(entries.n_ranks):
        upper_bound = np.minimum(upper_bound, upper_bound[:, via, None] + upper_bound[None, via, :])
    return upper_bound
