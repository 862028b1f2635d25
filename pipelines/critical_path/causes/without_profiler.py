"""A window retimed without what recording its events cost: the weights of its edges, and when everything then happens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipelines.base.errors import WrongValue
from pipelines.base.units import time
from pipelines.critical_path.causes.edge_causes import Events, Flags
from pipelines.critical_path.causes.recording_cost import RecordingCost
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints

_MOST_TIMES = 8.0  # the costs of events, at most: by then hardly an edge has time left
_HALVINGS = 20
_NEAR = 0.002  # of the time that is asked for


@dataclass(frozen=True)
class WithoutProfiler:
    """A window's edges without the profiler: their weights (m,), the times of the graph's nodes (n,), and how long it takes, ns.
    `scale`: what the costs were multiplied by, 1 unless the time without the profiler was known.
    """

    weight: Ints
    at: Ints
    length: int
    scale: float

    def moved(self, graph: ArrayGraph, events: Events) -> tuple[Events, Flags]:
        """Returns the events with the starts and durations that GPU work now has, and which are work whose times are known (k,)."""
        place = np.full(2 * int(events.event_id.max(initial=0)) + 3, -1, dtype=np.int64)
        place[graph.node_ids] = np.arange(len(graph))
        start, end = place[2 * events.event_id], place[2 * events.event_id + 1]
        known = events.is_work & (start >= 0) & (end >= 0)
        at = np.where(known, self.at[start], events.at)
        duration = np.where(known, np.maximum(self.at[end] - self.at[start], 0), events.duration)
        return replace(events, at=at, duration=duration), known


def without_profiler(graph: ArrayGraph, cost: RecordingCost) -> WithoutProfiler:
    """Retime a window. Where it is known what it takes without the profiler, the costs are scaled so that it does.

    Raises WrongValue, which names the range, for a time that no scale gives, and GraphHasCycle.
    """
    untraced = cost.request.untraced
    if untraced is None:
        return _retimed(graph, cost, 1.0)
    wanted = untraced * max(cost.n_steps, 1)
    low, high = 0.0, _MOST_TIMES
    most, least = _retimed(graph, cost, low), _retimed(graph, cost, high)
    if not least.length * (1 - _NEAR) <= wanted <= most.length * (1 + _NEAR):
        each = max(cost.n_steps, 1)
        raise WrongValue(
            f"--untraced {time(untraced)}: without the profiler it takes from {time(least.length / each)} to "
            f"{time(most.length / each)}{' a step' if each > 1 else ''}"
        )
    retimed = most
    for _ in range(_HALVINGS):
        if abs(retimed.length - wanted) <= _NEAR * wanted:
            break
        scale = (low + high) / 2
        retimed = _retimed(graph, cost, scale)
        low, high = (scale, high) if retimed.length > wanted else (low, scale)
    return retimed


def _retimed(graph: ArrayGraph, cost: RecordingCost, scale: float) -> WithoutProfiler:
    weight = cost.weights_without(graph.weight, scale)
    at = graph.forward(weight)
    return WithoutProfiler(weight, at, int(at.max(initial=0)), scale)
