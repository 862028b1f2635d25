"""The dependency graph of one rank as arrays, ready to be walked backward.

About 40 bytes per event and 21 per edge, without Python objects for either, so graphs of many ranks fit in memory
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.edge_types import EDGE_TYPES

WAITS = frozenset(kind.edge_code for kind in EDGE_TYPES.values() if kind.is_wait)
"""The types of edges that say what GPU work or a call waited for."""
_EDGE_PARTS = {"weight": np.int64, "code": np.int8, "owner": np.int32}


@dataclass(frozen=True, eq=False)
class ByEnd:
    """Indices of events sorted by end, and these ends (ns)."""

    place: npt.NDArray[np.int32]
    end_ns: npt.NDArray[np.int64]

    def between(self, after_ns: int | None, until_ns: int) -> Iterator[int]:
        """Yields the indices with after_ns < end <= until_ns, the latest first."""
        at = int(np.searchsorted(self.end_ns, until_ns, side="right"))
        while at > 0 and (after_ns is None or self.end_ns[at - 1] > after_ns):
            at -= 1
            yield int(self.place[at])


@dataclass(frozen=True, eq=False)
class RankEvents:
    """The events of a rank, arrays (n,), by ascending event_id; times in ns on the rank's own clock.

    lane: the stream of GPU work, the thread of a CPU event. launch: index of the call that launched GPU work; -1 if
    unknown. blocking: a call that waits for the GPU. copy: GPU work that is a copy.
    """

    event_id: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    is_gpu: npt.NDArray[np.bool_]
    lane: npt.NDArray[np.int32]
    process: npt.NDArray[np.int32]
    launch: npt.NDArray[np.int32]
    blocking: npt.NDArray[np.bool_]
    copy: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.event_id)

    @cached_property
    def gpu_by_end(self) -> ByEnd:
        """Returns GPU work in order of its ends."""
        return _by_end(self.end_ns, self.is_gpu)

    @cached_property
    def cpu_by_end(self) -> ByEnd:
        """Returns CPU events in order of their ends."""
        return _by_end(self.end_ns, ~self.is_gpu)

    @cached_property
    def copies_of(self) -> dict[int, list[int]]:
        """Returns the indices of the copies that a call launched, by the index of the call."""
        found: dict[int, list[int]] = {}
        for place in np.flatnonzero(self.copy & (self.launch >= 0)).tolist():
            found.setdefault(int(self.launch[place]), []).append(place)
        return found


def _by_end(end_ns: npt.NDArray, chosen: npt.NDArray[np.bool_]) -> ByEnd:
    # Of equal ends the smaller event_id comes last, so that a search from the end finds it first.
    places = np.flatnonzero(chosen)[::-1]
    places = places[np.argsort(end_ns[places], kind="stable")]
    return ByEnd(places.astype(np.int32), end_ns[places])


@dataclass(frozen=True, eq=False)
class RankGraph:
    """The graph of one rank. Node 2e is the start of the event at index e, node 2e + 1 its end.

    The edges into node v are first[v] … first[v + 1] - 1; src (m,) are nodes, weight (m,) ns, code (m,) edge types,
    owner (m,) the index of the event whose time an edge is (-1: none). may_guess: the trace has no cuda_sync rows, so
    what waited for what on the GPU must be guessed.
    """

    rank: int
    trace_id: str
    events: RankEvents
    first: npt.NDArray[np.int32]
    src: npt.NDArray[np.int32]
    weight: npt.NDArray[np.int64]
    code: npt.NDArray[np.int8]
    owner: npt.NDArray[np.int32]
    may_guess: bool = False

    def place_of(self, event_id: int) -> int | None:
        """Returns the index of an event; None if the graph does not have it."""
        place = int(np.searchsorted(self.events.event_id, event_id))
        there = place < len(self.events) and self.events.event_id[place] == event_id
        return place if there else None

    def destinations(self) -> npt.NDArray[np.int32]:
        """Returns the node that each edge leads to (m,)."""
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.int32), np.diff(self.first))


def rank_graph(
    rank: int, trace_id: str, events: RankEvents, edges: Mapping[str, npt.NDArray], may_guess: bool = False
) -> RankGraph:
    """Sort edges by destination. `edges`: arrays (m,) src, dst (nodes, as in RankGraph), weight, code, owner."""
    order = np.argsort(edges["dst"], kind="stable")
    first = np.zeros(2 * len(events) + 1, np.int32)
    np.cumsum(np.bincount(edges["dst"], minlength=2 * len(events)), out=first[1:])
    parts = {name: edges[name][order].astype(kind) for name, kind in _EDGE_PARTS.items()}
    return RankGraph(rank, trace_id, events, first, edges["src"][order].astype(np.int32), **parts, may_guess=may_guess)
