"""Guesses what waited for what where the trace does not say: for traces without cuda_sync rows.

Each function returns the event whose end was waited for, or None. Callers label it as a guess.
"""

from __future__ import annotations

from pipelines.fleet.path.rank_graph import WAITS, RankEvents, RankGraph

THRESHOLD_NS = 20_000
"""Shorter waits need no explanation; values from 5 to 200 us made no difference on real traces."""
_CLOCK_SLACK_NS = 10_000
"""A call may return before the work that it waited for ends, because the GPU's and the host's clock differ."""
_STREAM_SLACK_NS = 2_000


def sync_source(graph: RankGraph, place: int) -> int | None:
    """Returns the GPU work a blocking call waited for: of the work launched before it, the last to end before it
    returned.

    A copying call waited for its own copy.
    """
    events = graph.events
    start, end = int(events.start_ns[place]), int(events.end_ns[place])
    copies = events.copies_of.get(place, [])
    if end - start <= THRESHOLD_NS or not (copies or events.blocking[place]) or _has_sync(graph, 2 * place + 1):
        return None
    if copies:
        ended = [copy for copy in copies if start < events.end_ns[copy] <= end + _CLOCK_SLACK_NS]
        return max(ended, key=lambda copy: int(events.end_ns[copy]), default=None)
    for source in events.gpu_by_end.between(start, end + _CLOCK_SLACK_NS):
        if _launched_ns(events, source) < start:
            return source
    return None


def stream_source(graph: RankGraph, place: int, bound_ns: int) -> int | None:
    """Returns the work of another stream that GPU work waited for, if nothing known delayed it after `bound_ns`."""
    events = graph.events
    start = int(events.start_ns[place])
    if start - bound_ns <= THRESHOLD_NS:
        return None
    launched = _launched_ns(events, place)
    for source in events.gpu_by_end.between(bound_ns, start + _STREAM_SLACK_NS):
        if events.lane[source] != events.lane[place] and _launched_ns(events, source) < launched:
            return source
    return None


def thread_source(graph: RankGraph, place: int, bound_ns: int | None) -> int | None:
    """The CPU event of another thread of the process that handed over to this one; `bound_ns` is None for a root."""
    events = graph.events
    start = int(events.start_ns[place])
    if bound_ns is not None and start - bound_ns <= THRESHOLD_NS:
        return None
    for source in events.cpu_by_end.between(bound_ns, start):
        near = events.lane[source] != events.lane[place] and events.process[source] == events.process[place]
        if near and events.start_ns[source] < start:
            return source
    return None


def _has_sync(graph: RankGraph, node: int) -> bool:
    return not WAITS.isdisjoint(graph.code[graph.first[node] : graph.first[node + 1]].tolist())


def _launched_ns(events: RankEvents, place: int) -> int:
    """Returns when GPU work was launched; its start if the launch is unknown."""
    launch = int(events.launch[place])
    return int(events.start_ns[launch if launch >= 0 else place])
