"""What a change removes from a graph: time of edges, and waits. Shows which of two changes is nested in the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.timeline import Flags, Floats

_NESTED_PERCENT = threshold("nested_percent")


class _Change(Protocol):
    """The change of edges (m,), of a window or of a capture."""

    factor: Floats
    gone: Flags


@dataclass(frozen=True)
class Removed:
    """The time and the waits that a change removes, by edge (e,).

    `edge` are indices in ascending order, `ns` is the time that the change removes of the edge, and `gone` is whether
    the edge is a removed wait.
    """

    edge: Ints
    ns: Ints
    gone: Flags

    @classmethod
    def by(cls, change: _Change, weight: Ints) -> Removed:
        """Build from a change of edges and their weights (m,), ns."""
        edge = np.flatnonzero((change.factor < 1) | change.gone)
        ns = np.maximum(weight[edge], 0) * (1 - change.factor[edge])
        return cls(edge, np.rint(ns).astype(np.int64), change.gone[edge])

    def is_within(self, other: Removed) -> bool:
        """Whether another change removes nearly all of the same time, and of the same waits."""
        _, mine, others = np.intersect1d(self.edge, other.edge, assume_unique=True, return_indices=True)
        time = np.minimum(self.ns[mine], other.ns[others])
        return _is_most(time, self.ns) and _is_most(self.gone[mine] & other.gone[others], self.gone)


def _is_most(part: Ints | Flags, whole: Ints | Flags) -> bool:
    return 100 * int(part.sum()) >= _NESTED_PERCENT * int(whole.sum())
