"""Matched collectives as one entry per kernel, and medians and minima over the entries of a rank or of an instance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Instances:
    """Matched collectives: arrays (ranks, instances) of int64 ns; `present` is False where a rank takes no part.

    bounded: (instances,): nobody could leave before everybody had arrived.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    present: np.ndarray
    bounded: np.ndarray


@dataclass(frozen=True)
class Groups:
    """Which group each of n entries is in: key (n,), 0 to n_groups - 1."""

    key: np.ndarray
    n_groups: int

    @cached_property
    def size(self) -> np.ndarray:
        """Returns the number of entries of each group (n_groups,)."""
        return np.bincount(self.key, minlength=self.n_groups)

    @cached_property
    def _first(self) -> np.ndarray:
        return np.cumsum(self.size) - self.size

    @cached_property
    def order(self) -> np.ndarray:
        """Returns the positions of the entries, group after group."""
        return np.argsort(self.key, kind="stable")

    def median(self, values: np.ndarray) -> np.ndarray:
        """Returns the median of each group (n_groups,); NaN for a group without entries."""
        ordered = values[np.lexsort((values, self.key))]
        there = self.size > 0
        first, size = self._first[there], self.size[there]
        found = np.full(self.n_groups, np.nan)
        found[there] = (ordered[first + (size - 1) // 2] + ordered[first + size // 2]) / 2
        return found

    def least(self, values: np.ndarray, none: float) -> np.ndarray:
        """Returns the least of each group (n_groups,); `none` for a group without entries."""
        there = self.size > 0
        found = np.full(self.n_groups, none, values.dtype)
        if len(values):
            found[there] = np.minimum.reduceat(values[self.order], self._first[there])
        return found

    def most(self, values: np.ndarray, none: float) -> np.ndarray:
        """Returns the greatest of each group (n_groups,); `none` for a group without entries."""
        return -self.least(-values, -none)


@dataclass(frozen=True)
class Entries:
    """The kernels of matched collectives, arrays (n,): place of the rank, number of the instance, times in int64 ns.

    n_ranks: ranks, of which some may have no entry. bounded: (instances,), as in Instances.
    """

    rank: np.ndarray
    instance: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    n_ranks: int
    bounded: np.ndarray

    @classmethod
    def of(cls, instances: Instances) -> Entries:
        """Returns the entries of instances, ordered by instance and then by rank."""
        column, row = np.nonzero(instances.present.T)
        start, end = instances.start_ns[row, column], instances.end_ns[row, column]
        return cls(row, column, start, end, len(instances.present), instances.bounded)

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def by_rank(self) -> Groups:
        """Returns the entries of each rank."""
        return Groups(self.rank, self.n_ranks)

    @cached_property
    def by_instance(self) -> Groups:
        """Returns the entries of each instance."""
        return Groups(self.instance, len(self.bounded))

    def of_instances(self, chosen: np.ndarray) -> tuple[Entries, np.ndarray]:
        """Returns the entries of some instances (a mask), which keep their numbers, and their positions."""
        places = np.flatnonzero(chosen[self.instance])
        kept = (self.rank[places], self.instance[places], self.start_ns[places], self.end_ns[places])
        return Entries(*kept, self.n_ranks, self.bounded), places
