"""Time of edges and waits that a change removes from a graph, and a test whether one change is nested in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.timeline import Flags, Floats

_NESTED_PERCENT = threshold("nested_percent")


class _Change(Protocol):
    """The change of the edges (m,) of a window or of a capture."""

    factor: Floats
    gone: Flags


@dataclass(frozen=True)
class Removed:
    """The time and the waits that a change removes.

    `edge` are indices of edges in ascending order, and `ns` is the time that the change removes of each. `call` are the
    end nodes of the calls that no longer wait, in ascending order, and `waited` is the time that each of them takes, ns.
    """

    edge: Ints
    ns: Ints
    call: Ints
    waited: Ints

    @classmethod
    def by(cls, change: _Change, graph: ArrayGraph, dst_ns: Ints) -> Removed:
        """Build from a change of a graph's edges. `dst_ns` (m,) are the durations of their destination events, ns."""
        edge, waits = np.flatnonzero(change.factor < 1), np.flatnonzero(change.gone)
        ns = np.maximum(graph.weight[edge], 0) * (1 - change.factor[edge])
        call, first = np.unique(graph.dst[waits], return_index=True)  # a call may wait for several streams
        return cls(edge, np.rint(ns).astype(np.int64), call, dst_ns[waits[first]])

    @property
    def total_ns(self) -> int:
        return int(self.ns.sum()) + int(self.waited.sum())

    def is_same(self, other: Removed) -> bool:
        """Return whether each of two changes is nested in the other."""
        return self.is_within(other) and other.is_within(self)

    def is_within(self, other: Removed) -> bool:
        """Return whether `other` removes nearly all of this change's time, and nearly all of its waiting time."""
        time = _common(self.edge, self.ns, other.edge, other.ns)
        waited = _common(self.call, self.waited, other.call, other.waited)
        return _is_most(time, self.ns) and _is_most(waited, self.waited)


def _common(keys: Ints, ns: Ints, other_keys: Ints, other_ns: Ints) -> Ints:
    """Return the time that two changes both remove, by common key, ns."""
    _, mine, others = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
    return np.minimum(ns[mine], other_ns[others])


def _is_most(part: Ints, whole: Ints) -> bool:
    return 100 * int(part.sum()) >= _NESTED_PERCENT * int(whole.sum())
