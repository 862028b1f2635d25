"""The path of the default profile, recomputed in plain Python from a written capture.

Every node has one edge from the event that bound it. The module shares no code with the simulator. Like any reader, it
sees only the events, infers stacks, waits and syncs from them, and computes the longest path of the whole graph. It
works for captures whose threads do not overlap in time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction
from typing import Any

Event = dict[str, Any]
Node = tuple[int, int]  # (index in traceEvents, 0 for start or 1 for end)
Edges = dict[Node, list[tuple[Node, int]]]

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
LEAST_LATENCY_NS = 3000
"""Lower bound of a launch's latency. Work that ended before the launch arrived did not delay the launched work."""
BLOCKING = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


def default_path_ns(events: list[Event]) -> int:
    """Return the length of the longest path in ns over all events of one rank."""
    into: Edges = defaultdict(list)
    cats = ("cpu_op", "cuda_runtime", "user_annotation", *WORK)
    known = {i for i, e in enumerate(events) if e.get("ph") == "X" and e["cat"] in cats}
    times = {(i, k): _time(events[i], k) for i in known for k in (0, 1)}
    calls = {e["args"]["correlation"]: i for i, e in enumerate(events) if e.get("cat") == "cuda_runtime"}
    launched = sorted(
        (times[calls[e["args"]["correlation"]], 0], e["args"]["stream"], i)
        for i, e in enumerate(events)
        if e.get("cat") in WORK
    )
    explained = _sync_edges(events, calls, launched, times, into)
    _cpu_edges(events, times, explained, into)
    _gpu_edges(events, calls, launched, times, into)
    best: dict[Node, int] = {}
    # Times increase along every edge of these captures, so sorting by time is a topological sort.
    for node in sorted(times, key=lambda n: (times[n], n[1])):
        best[node] = max((best[source] + weight for source, weight in into[node]), default=0)
        assert node not in into or best[node] == times[node] - min(times.values()), (events[node[0]], into[node])
    return max(best.values())


def _time(event: Event, end: int) -> int:
    return int(Fraction(event["ts"] + (event["dur"] if end else 0)) * 1000)


def _cpu_edges(events: list[Event], times: dict[Node, int], explained: set[int], into: Edges) -> None:
    """Connect each CPU node to the one before it. An end of a call that really waited gets an edge of weight 0.

    The threads do not overlap, so the nodes of all threads form one sequence.
    """
    on_cpu = [node for node in times if events[node[0]]["cat"] not in WORK]
    for last, node in itertools.pairwise(sorted(on_cpu, key=lambda n: (times[n], n[1], n[0]))):
        into[node].append((last, 0 if node[1] and node[0] in explained else times[node] - times[last]))


def _last_before(launched: list[tuple[int, int, int]], time: int, stream: int) -> int | None:
    """Return the last work launched on a stream before a time.

    None if the stream has no work by then, or if the stream is -1 (not used).
    """
    return next((i for begun, s, i in reversed(launched) if begun < time and s == stream), None)


def _sync_edges(events: list[Event], calls: dict[int, int], launched: list[tuple[int, int, int]],
                times: dict[Node, int], into: Edges) -> set[int]:  # fmt: skip
    """Add edges into the ends of blocking calls, and return the calls that really waited."""
    explained = set()
    streams = {s for _, s, _ in launched}
    for row in (e for e in events if e.get("cat") == "cuda_sync" and e["name"] != "Stream Wait Event"):
        call, args = calls[row["args"]["correlation"]], row["args"]
        assert events[call]["name"] in BLOCKING
        begin = times[call, 0]
        if row["name"] == "Event Sync":
            record = times[calls[args["wait_on_cuda_event_record_corr_id"]], 0]
            sources = [_last_before(launched, record, args["wait_on_stream"])]
        else:
            on = streams if row["name"] == "Context Sync" else {args["stream"]}
            sources = [_last_before(launched, begin, stream) for stream in on]
        ended = [(times[source, 1], source) for source in sources if source is not None]
        if ended and max(ended)[0] > begin:
            explained.add(call)
            into[call, 1].append(((max(ended)[1], 1), times[call, 1] - max(ended)[0]))
    return explained


def _gpu_edges(events: list[Event], calls: dict[int, int], launched: list[tuple[int, int, int]],
               times: dict[Node, int], into: Edges) -> None:  # fmt: skip
    waits: dict[int, list[int]] = defaultdict(list)
    for row in (e for e in events if e["name"] == "Stream Wait Event"):
        args = row["args"]
        record = times[calls[args["wait_on_cuda_event_record_corr_id"]], 0]
        source = _last_before(launched, record, args["wait_on_stream"])
        begin = times[calls[args["correlation"]], 0]
        target = next((i for begun, s, i in launched if begun > begin and s == args["stream"]), None)
        if source is not None and target is not None:
            waits[target].append(source)
    last: dict[int, int] = {}
    for begun, stream, i in launched:
        call, start = calls[events[i]["args"]["correlation"]], times[i, 0]
        into[i, 1].append(((i, 0), times[i, 1] - start))
        causes = [(begun + LEAST_LATENCY_NS, (call, 0))]
        causes += [
            (times[source, 1], (source, 1)) for source in [*waits[i], *([last[stream]] if stream in last else [])]
        ]
        bound = max(causes)[1]
        into[i, 0].append((bound, start - times[bound]))
        last[stream] = i
