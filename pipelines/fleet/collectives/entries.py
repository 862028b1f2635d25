"""Matched collectives with one entry per kernel, and medians and minima of a rank's or an instance's entries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Instances:
    """Matched collectives as arrays (ranks, instances), int64 ns. If a rank does not take part, `present` is False.

    bounded (instances,): no rank could leave before all ranks had arrived.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    present: np.ndarray
    bounded: np.ndarray


@dataclass(frozen=True)
class Groups:
    """A grouping of n entries. `key` (n,): the group of each entry, 0 to n_groups - 1."""

    key: np.ndarray
    n_groups: int

    @cached_property
    def size(self) -> np.ndarray:
        """Return the number of entries of each group, (n_groups,)."""
        return np.bincount(self.key, minlength=self.n_groups)

    @cached_property
    def _first(self) -> np.ndarray:
        return np.cumsum(self.size) - self.size

    @cached_property
    def order(self) -> np.ndarray:
        """Return the indices of the entries, group after group."""
        return np.argsort(self.key, kind="stable")

    def median(self, values: np.ndarray) -> np.ndarray:
        """Return the median of each group, (n_groups,); NaN for a group without entries."""
        ordered = values[np.lexsort((values, self.key))]
        has_entries = self.size > 0
        first, size = self._first[has_entries], self.size[has_entries]
        medians = np.full(self.n_groups, np.nan)
        medians[has_entries] = (ordered[first + (size - 1) // 2] + ordered[first + size // 2]) / 2
        return medians

    def least(self, values: np.ndarray, none: float) -> np.ndarray:
        """Return the minimum of each group, (n_groups,); `none` for a group without entries."""
        has_entries = self.size > 0
        minima = np.full(self.n_groups, none, values.dtype)
        if len(values):
            minima[has_entries] = np.minimum.reduceat(values[self.order], self._first[has_entries])
        return minima

    def most(self, values: np.ndarray, none: float) -> np.ndarray:
        """Return the maximum of each group, (n_groups,); `none` for a group without entries."""
        return -self.least(-values, -none)


@dataclass(frozen=True)
class Entries:
    """The kernels of matched collectives, arrays (n,): index of the rank, number of the instance, times in int64 ns.

    n_ranks: number of ranks, some of which may have no entry. bounded (instances,): as in Instances.
    """

    rank: np.ndarray
    instance: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    n_ranks: int
    bounded: np.ndarray

    @classmethod
    def of(cls, instances: Instances) -> Entries:
        """Return the entries of instances, ordered by instance and then by rank."""
        column, row = np.nonzero(instances.present.T)
        start, end = instances.start_ns[row, column], instances.end_ns[row, column]
        return cls(row, column, start, end, len(instances.present), instances.bounded)

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def by_rank(self) -> Groups:
        """Return the groups of entries by rank."""
        return Groups(self.rank, self.n_ranks)

    @cached_property
    def by_instance(self) -> Groups:
        """Return the groups of entries by instance."""
        return Groups(self.instance, len(self.bounded))

    def of_instances(self, chosen: np.ndarray) -> tuple[Entries, np.ndarray]:
        """Return the entries of the chosen instances (a mask), and the indices of these entries.

        The instances keep their numbers.
        """
        positions = np.flatnonzero(chosen[self.instance])
        columns = (self.rank[positions], self.instance[positions], self.start_ns[positions], self.end_ns[positions])
        return Entries(*columns, self.n_ranks, self.bounded), positions
