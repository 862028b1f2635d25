"""A window retimed without the cost of recording its events: the weights of its edges, and the resulting times."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipelines.base.errors import WrongValue
from pipelines.base.units import time
from pipelines.critical_path.causes.edge_causes import Events, Flags
from pipelines.critical_path.causes.recording_cost import RecordingCost
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph

_MOST_TIMES = 8.0  # maximum scale of the costs, at which hardly any edge has time left
_HALVINGS = 20
_NEAR = 0.002  # tolerance, relative to the requested time


@dataclass(frozen=True)
class WithoutProfiler:
    """A window's edges without the profiler.

    `weight` (m,) are their weights, `at` (n,) the times of the graph's nodes, `length` is the window's length, ns.
    `scale` is the factor of the costs, 1 unless the time without the profiler was known.
    """

    weight: Ints
    at: Ints
    length: int
    scale: float

    def moved(self, graph: ArrayGraph, events: Events) -> tuple[Events, Flags]:
        """Return the events with the new starts and durations of GPU work.

        Also returns which events are GPU work with known times (k,).
        """
        node_index = np.full(2 * int(events.event_id.max(initial=0)) + 3, -1, dtype=np.int64)
        node_index[graph.node_ids] = np.arange(len(graph))
        start, end = node_index[2 * events.event_id], node_index[2 * events.event_id + 1]
        is_known = events.is_work & (start >= 0) & (end >= 0)
        at_ns = np.where(is_known, self.at[start], events.at)
        duration = np.where(is_known, np.maximum(self.at[end] - self.at[start], 0), events.duration)
        return replace(events, at=at_ns, duration=duration), is_known


def without_profiler(graph: ArrayGraph, cost: RecordingCost) -> WithoutProfiler:
    """Retime a window without the profiler.

    If the duration without the profiler is known, the costs are scaled to yield it. Raises WrongValue, which names the
    range, if no scale does, and GraphHasCycle.
    """
    untraced = cost.request.untraced
    if untraced is None:
        return _retimed(graph, cost, 1.0)
    target_ns = untraced * max(cost.n_steps, 1) + cost.outside_ns
    low, high = 0.0, _MOST_TIMES
    slowest, fastest = _retimed(graph, cost, low), _retimed(graph, cost, high)
    if not fastest.length * (1 - _NEAR) <= target_ns <= slowest.length * (1 + _NEAR):
        each = max(cost.n_steps, 1)
        shortest, longest = ((retimed.length - cost.outside_ns) / each for retimed in (fastest, slowest))
        raise WrongValue(
            f"--untraced {time(untraced)}: without the profiler it takes from {time(shortest)} to "
            f"{time(longest)}{' a step' if each > 1 else ''}"
        )
    retimed = slowest
    for _ in range(_HALVINGS):
        if abs(retimed.length - target_ns) <= _NEAR * target_ns:
            break
        scale = (low + high) / 2
        retimed = _retimed(graph, cost, scale)
        low, high = (scale, high) if retimed.length > target_ns else (low, scale)
    return retimed


def _retimed(graph: ArrayGraph, cost: RecordingCost, scale: float) -> WithoutProfiler:
    weight = cost.weights_without(graph.weight, scale)
    node_times = graph.forward(weight)
    return WithoutProfiler(weight, node_times, int(node_times.max(initial=0)), scale)
