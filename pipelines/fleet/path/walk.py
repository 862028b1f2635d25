"""Finds the critical path through several ranks: from the end backward, along what held each event up.

Why not the longest path: edges over gaps of the host weigh 0 (or all paths between two points would be equally long),
so the heaviest path may lead through a rank that was not last. Here every step follows the binding edge: the incoming
edge whose source time plus weight is latest; at the end of a collective, to the last rank that arrived. The segments
tile the time from the first event to the target without gap or overlap. Shortening a segment of work or transfer
shortens the whole by as much, until something else binds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.fleet.path.guesses import THRESHOLD_NS, stream_source, sync_source, thread_source
from pipelines.fleet.path.joined import JoinedGraph
from pipelines.fleet.path.rank_graph import WAITS, RankGraph

TARGETS = ("last_gpu_end", "last_collective_end", "last_event_end")


class NoTarget(LookupError):
    """The capture has no event of the kind that the path should end with."""


@dataclass(frozen=True)
class Segment:
    """A stretch of the path; times in ns on the common clock.

    kind: cpu_op, gpu_kernel, transfer (of a collective, after all ranks have arrived), launch_delay, kernel_delay
    (between work of one stream), cross_stream_wait, sync_return (from the GPU's end to the call that waited for it),
    thread_hand_off, gap (cause unknown), head (before the rank's first event). event_id: the event that it leads into,
    or whose time it is; owner_event_id: the event whose time it is, None if there is none. guessed: the hop is a guess.
    """

    rank: int
    kind: str
    start_ns: int
    end_ns: int
    event_id: int
    owner_event_id: int | None
    guessed: bool = False
    collective_id: str | None = None

    @property
    def duration_ns(self) -> int:
        """Returns its length."""
        return self.end_ns - self.start_ns


def walk_back(joined: JoinedGraph, target: str = "last_gpu_end") -> list[Segment]:
    """Returns the path to the target, first segment first. Raises NoTarget, and ValueError for an unknown target."""
    return _Walk(joined, *find_target(joined, target)).run()


def find_target(joined: JoinedGraph, target: str) -> tuple[int, int]:
    """Returns the node that the path ends with, as (index of the rank, node): the latest; of several, the lowest rank."""
    if target not in TARGETS:
        raise ValueError(f"no target {target!r}: give one of {', '.join(TARGETS)}")
    best: tuple[int, int, int] | None = None
    for rank, graph in enumerate(joined.ranks):
        if target == "last_collective_end":
            places = np.array(sorted(joined.meeting_of[rank]), np.int64)
        else:
            places = np.flatnonzero(graph.events.is_gpu) if target == "last_gpu_end" else np.arange(len(graph.events))
        if len(places):
            place = int(places[np.argmax(graph.events.end_ns[places])])
            end = int(graph.events.end_ns[place]) - joined.offset_ns[rank]
            if best is None or end > best[0]:
                best = end, rank, place
    if best is None:
        raise NoTarget(f"no rank has an event for target {target}")
    return best[1], 2 * best[2] + 1


def first_ns(joined: JoinedGraph) -> int:
    """Returns the start of the first event of all ranks, ns on the common clock."""
    starts = zip(joined.ranks, joined.offset_ns, strict=True)
    return min(int(graph.events.start_ns.min()) - offset for graph, offset in starts if len(graph.events))


class _Walk:
    """The position of a walk: at `node` of rank number `rank`; everything later than `now` is already explained."""

    def __init__(self, joined: JoinedGraph, rank: int, node: int) -> None:
        self.joined, self.rank, self.node = joined, rank, node
        self.begin = first_ns(joined)
        self.now = self._time(node)
        self.segments: list[Segment] = []
        self.guessed_at: set[tuple[int, int]] = set()

    def run(self) -> list[Segment]:
        while self.now > self.begin:
            meeting = self.joined.meeting_of[self.rank].get(self.node // 2) if self.node % 2 else None
            if meeting is not None:
                self._meet(meeting)
            elif not self._guess_return() and not self._follow():
                self._emit("head", self.begin)
        return self.segments[::-1]

    @property
    def graph(self) -> RankGraph:
        return self.joined.ranks[self.rank]

    def _time(self, node: int) -> int:
        events = self.graph.events
        times = events.end_ns if node % 2 else events.start_ns
        return int(times[node // 2]) - self.joined.offset_ns[self.rank]

    def _emit(self, kind: str, start_ns: int, owner: int | None = None, guessed: bool = False) -> None:
        start = max(min(start_ns, self.now), self.begin)
        if start < self.now:
            graph = self.graph
            meeting = self.joined.meeting_of[self.rank].get(self.node // 2) if kind == "transfer" else None
            self.segments.append(
                Segment(
                    graph.rank, kind, start, self.now, int(graph.events.event_id[self.node // 2]),
                    None if owner is None else int(graph.events.event_id[owner]), guessed,
                    None if meeting is None else self.joined.meetings[meeting].collective_id,
                )
            )  # fmt: skip
        self.now = start

    def _meet(self, number: int) -> None:
        meeting = self.joined.meetings[number]
        self._emit("transfer", meeting.arrived_ns, self.node // 2)
        self.rank, place = meeting.last
        self.node = 2 * place

    def _follow(self) -> bool:
        """Follow the binding edge; returns False at a root."""
        graph, node, offset = self.graph, self.node, self.joined.offset_ns[self.rank]
        edge = self._binding()
        if edge is None:
            return self._guess_start(None)
        source = int(graph.src[edge])
        bound = min(self._time(source) + int(graph.weight[edge]), self.now)
        code = int(graph.code[edge])
        # A delay is not work: the time it spans may have been a wait for something else.
        known = self._time(source) if code in _DELAYS else bound
        if self._guess_start(known + offset):
            return True
        synced = code in WAITS and self.now - bound <= THRESHOLD_NS
        self._emit(("cross_stream_wait" if node % 2 == 0 else "sync_return") if synced else "gap", bound)
        owner = int(graph.owner[edge])
        self._emit(_DELAYS.get(code) or self._work(source), self._time(source), owner if owner >= 0 else node // 2)
        self.node = source
        return True

    def _binding(self) -> int | None:
        """Returns the edge into the node whose source time plus weight is latest; of several, the latest source, then
        the first.
        """
        graph = self.graph
        edges = range(graph.first[self.node], graph.first[self.node + 1])

        def end(edge: int) -> tuple[int, int, int]:
            source = int(graph.src[edge])
            at = self._time(source)
            return at + int(graph.weight[edge]), at, -source

        return max(edges, key=end, default=None)

    def _work(self, source: int) -> str:
        return "gpu_kernel" if self.graph.events.is_gpu[source // 2] else "cpu_op"

    def _guess_return(self) -> bool:
        """A blocking call returned when GPU work had ended."""
        if self.node % 2 == 0 or not self._may_guess() or self.graph.events.is_gpu[self.node // 2]:
            return False
        return self._hop("sync_return", sync_source(self.graph, self.node // 2))

    def _guess_start(self, bound_ns: int | None) -> bool:
        """GPU work waited for another stream, or a CPU event for another thread. `bound_ns` is on the rank's own clock."""
        if self.node % 2 or not self._may_guess():
            return False
        place, events = self.node // 2, self.graph.events
        if not events.is_gpu[place]:
            return self._hop("thread_hand_off", thread_source(self.graph, place, bound_ns))
        bound = int(events.start_ns.min()) if bound_ns is None else bound_ns
        return self._hop("cross_stream_wait", stream_source(self.graph, place, bound))

    def _may_guess(self) -> bool:
        # Meeting a hop again means a cycle, which only guesses can cause: the guess was wrong.
        return self.graph.may_guess and (self.rank, self.node) not in self.guessed_at

    def _hop(self, kind: str, source: int | None) -> bool:
        if source is None:
            return False
        self.guessed_at.add((self.rank, self.node))
        self._emit(kind, self._time(2 * source + 1), guessed=True)
        self.node = 2 * source + 1
        return True


_DELAYS = {kind.edge_code: kind.segment for kind in EDGE_TYPES.values() if kind.segment}
