"""The time of every event under a scenario's weights, for a redrawn trace.

**Events of the graph.** Their nodes move to their longest distance, counted from the start times of the graph's
sources. Time that the model does not explain is kept. For an edge u → v of weight w, the trace shows that v came t(v) -
t(u) later. If that is less than w (clocks, work that waited for nothing), the edge counts as much less in the new
trace, too. If v came later than every edge into it explains (gaps between top-level operators, waking up after a
synchronization), the remainder stays before v:

    t'(v) = max over edges u → v of (t'(u) + w' - max(0, t(u) + w - t(v))) + rest(v);   t'(v) = t(v) without edges in

So without a change of weights every node stays exactly where it was. Work of one stream and calls of one thread keep
their order. An event that started after another's end still does (overlaps do not grow), even if the model has no edge
between them.

**Other events** (annotations, Python frames, waits, flows, counters, work outside the window) follow their thread or
stream. A time keeps its distance to the last start or end of a graph event there, but does not pass the next one. A
time equal to the start or end of a graph event moves with it. Times before the first graph event stay. Events on a
thread without graph events follow the latest earlier event of the whole graph.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.cycle import GraphHasCycle
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.whatif.window import Window


def new_times(window: Window, weight: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the events whose start and end are in the graph, and their new starts and ends, ns.

    The events are indices in `window.events`. `weight` (m,) is the weight of each edge on the path, ns. Raises
    GraphHasCycle.
    """
    events, graph = window.events, window.graph
    event, is_end = np.searchsorted(events.event_id, graph.node_ids // 2), graph.node_ids % 2 == 1
    old = (events.ts[event] + np.where(is_end, events.dur[event], 0)).astype(np.int64)
    before, after = _order(window)
    none = np.zeros(len(before), dtype=np.int64)
    ordered = ArrayGraph(
        graph.node_ids,
        np.append(graph.src, before),
        np.append(graph.dst, after),
        np.append(graph.weight, none),
    )
    try:
        new = _moved(ordered, np.append(weight, none), old)
    except GraphHasCycle:  # the trace contradicts itself: an event waited for work that its stream ran later
        new = _moved(graph, weight, old)
    never = np.iinfo(np.int64).min
    start, end = np.full(len(events.event_id), never), np.full(len(events.event_id), never)
    start[event[~is_end]] = new[~is_end]
    end[event[is_end]] = new[is_end]
    both = np.flatnonzero((start > never) & (end > never))
    return both, start[both], np.maximum(start, end)[both]


def _moved(graph: ArrayGraph, weight: Ints, old: Ints) -> Ints:
    src, dst = graph.src, graph.dst
    against = np.minimum(old[dst] - old[src] - graph.weight, 0)
    explained = np.full(len(graph), np.iinfo(np.int64).min)
    np.maximum.at(explained, dst, old[src] + graph.weight + against)
    remainder = old - np.maximum(explained, old.min() - 1)  # used only for nodes with incoming edges
    return graph.forward(weight + against + remainder[dst], begin=old)


def _order(window: Window) -> tuple[Ints, Ints]:
    """Return pairs of nodes (from, to) that keep their order on their stream or thread, even without an edge.

    The pairs include the start and end of each event, because profile hta has events whose end does not depend on their
    start.
    """
    events, ids = window.events, window.graph.node_ids
    index_of = np.full(int(max(ids.max(), 2 * events.event_id[-1] + 1)) + 1, -1, dtype=np.int64)
    index_of[ids] = np.arange(len(ids))
    lasting = 2 * events.event_id[events.dur > 0]
    on_threads = (_on_thread(window, thread) for thread in np.unique(events.thread) if thread >= 0)
    pairs = [(lasting, lasting + 1), _on_streams(window), *on_threads]
    before, after = (index_of[np.concatenate(side)] for side in zip(*pairs, strict=True))
    in_graph = (before >= 0) & (after >= 0)
    return before[in_graph], after[in_graph]


def _on_streams(window: Window) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Return pairs of nodes that keep their order on a stream: the end of a GPU activity and the start of the next one.

    If the two activities overlap, the pair has the first activity's start instead of its end.
    """
    events = window.events
    work = np.flatnonzero(events.stream >= 0)
    work = work[np.lexsort((events.event_id[work], events.ts[work], events.stream[work]))]
    first, second = work[:-1], work[1:]
    same = events.stream[first] == events.stream[second]
    first, second = first[same], second[same]
    overlaps = events.ts[first] + events.dur[first] > events.ts[second]
    return 2 * events.event_id[first] + np.where(overlaps, 0, 1), 2 * events.event_id[second]


def _on_thread(window: Window, thread: int) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Return pairs of nodes that keep their order on a thread: the last end before an event's start, and that start.

    An end at the same time as the start counts as before it, as in the call stacks. Events of zero duration count only
    as starts.
    """
    events = window.events
    on = np.flatnonzero(events.thread == thread)
    ended = on[events.dur[on] > 0]
    end = events.ts[ended] + events.dur[ended]
    ended, end = ended[np.argsort(end, kind="stable")], np.sort(end)
    last = np.searchsorted(end, events.ts[on], side="right") - 1
    follows = last >= 0
    return 2 * events.event_id[ended[last[follows]]] + 1, 2 * events.event_id[on[follows]]


class Clock:
    """A map from old to new times of one thread or stream, built from the graph's nodes there."""

    def __init__(self, old: Ints, new: Ints, is_end: npt.NDArray[np.bool_]) -> None:
        order = np.argsort(old, kind="stable")
        old, new, is_end = old[order], new[order], is_end[order]
        first = np.flatnonzero(np.append(True, old[1:] != old[:-1]))
        self._at = old[first]
        low, high = np.minimum.reduceat(new, first), np.maximum.reduceat(new, first)
        huge = np.iinfo(np.int64).max
        starts = np.minimum.reduceat(np.where(is_end, huge, new), first)
        ends = np.maximum.reduceat(np.where(is_end, new, -huge), first)
        # Times stay in order after the move. Where two clocks disagree, the later time is used.
        self._after = np.maximum.accumulate(high)
        past = np.append(low[0], self._after[:-1])
        self._until = np.maximum(low, past)
        self._start = np.clip(np.where(starts < huge, starts, high), self._until, self._after)
        self._end = np.clip(np.where(ends > -huge, ends, low), self._until, self._after)

    def move(self, times: Ints, *, ends: bool) -> Ints:
        """Return the new times of starts (or with `ends`, of ends) of events that are not in the graph."""
        index = np.searchsorted(self._at, times, side="right") - 1
        inside = np.maximum(index, 0)
        new = np.where(index < 0, times, self._after[inside] + times - self._at[inside])
        following = np.minimum(index + 1, len(self._at) - 1)
        new = np.where(index + 1 < len(self._at), np.minimum(new, self._until[following]), new)
        hit = (index >= 0) & (self._at[inside] == times)
        return np.where(hit, (self._end if ends else self._start)[inside], new)
