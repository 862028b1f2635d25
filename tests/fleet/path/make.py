"""Small captures of several ranks, written as lists of events, and a replay of them that is independent of the walk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipelines.critical_path.graph.edge_types import edge_codes
from pipelines.fleet.path.joined import Instance, JoinedGraph, join_ranks
from pipelines.fleet.path.rank_graph import GPU, RankGraph, rank_graph

OPERATOR_KERNEL, DEPENDENCY = edge_codes(["OPERATOR_KERNEL", "DEPENDENCY"])


@dataclass(frozen=True)
class Event:
    """GPU work on a lane of a rank, in ns on the rank's clock.

    `instance`: the collective that it takes part in, or None.
    """

    id: str
    rank: int
    lane: int
    start: int
    dur: int
    instance: str | None = None

    @property
    def end(self) -> int:
        return self.start + self.dur


@dataclass(frozen=True)
class Case:
    """Events, dependencies (the end of the first id before the start of the second), and offsets of the clocks."""

    events: tuple[Event, ...]
    deps: tuple[tuple[str, str], ...] = ()
    offsets: tuple[int, ...] = ()

    def offset(self, rank: int) -> int:
        return self.offsets[rank] if rank < len(self.offsets) else 0

    def before(self) -> dict[str, list[str]]:
        """Return, for each event, the previous event on its lane and its dependencies.

        These must end before the event starts.
        """
        sources: dict[str, list[str]] = {event.id: [] for event in self.events}
        last: dict[tuple[int, int], str] = {}
        for event in sorted(self.events, key=lambda e: (e.start, e.id)):
            lane = event.rank, event.lane
            if lane in last:
                sources[event.id].append(last[lane])
            last[lane] = event.id
        for source, waiting in self.deps:
            sources[waiting].append(source)
        return sources


def numbered(case: Case) -> dict[str, int]:
    """Return the event_id of every event. Each rank counts from 0."""
    ids: dict[str, int] = {}
    for rank in {event.rank for event in case.events}:
        ids |= {event.id: place for place, event in enumerate(e for e in case.events if e.rank == rank)}
    return ids


def joined(case: Case) -> JoinedGraph:
    """Return the case as joined graphs of ranks."""
    ranks = sorted({event.rank for event in case.events})
    ids = numbered(case)
    names = dict.fromkeys(event.instance for event in case.events if event.instance)
    instances = [
        Instance(name, tuple((e.rank, ids[e.id]) for e in case.events if e.instance == name)) for name in names
    ]
    return join_ranks([_graph(case, rank) for rank in ranks], instances)


def _graph(case: Case, rank: int) -> RankGraph:
    """Return the graph of a rank.

    All events are on the GPU. The edge of an event weighs its duration. Edges between events weigh 0, so delays have no
    weight.
    """
    own = [event for event in case.events if event.rank == rank]
    place = {event.id: i for i, event in enumerate(own)}
    edges = [(2 * i, 2 * i + 1, event.dur, OPERATOR_KERNEL, i) for i, event in enumerate(own)]
    for waiting, sources in case.before().items():
        if waiting in place:
            edges += [(2 * place[s] + 1, 2 * place[waiting], 0, DEPENDENCY, -1) for s in sources]
    src, dst, weight, code, owner = np.array(edges, np.int64).T
    nodes = {
        "node": np.arange(2 * len(own)),
        "at_ns": np.array([time for event in own for time in (event.start, event.end)]),
        "side": np.full(2 * len(own), GPU),
    }
    other_columns = {"attributed": owner, "owner": owner, "flags": np.zeros(len(src))}
    graph = rank_graph(
        rank, f"trace{rank}", nodes, {"src": src, "dst": dst, "weight": weight, "code": code, **other_columns}
    )
    return graph.behind(case.offset(rank))


def replayed(case: Case, faster: str | None = None, by: int = 0) -> dict[str, tuple[int, int]]:
    """Return start and end of each event on the common clock, if `faster` (an event or a collective) took `by` ns less.

    Every event keeps its own delay, which is the time from the end of all events that it waits for to its start. A
    collective ends its transfer time after the last rank has arrived.
    """
    before = case.before()
    event_of = {event.id: event for event in case.events}
    seen = {e.id: (e.start - case.offset(e.rank), e.end - case.offset(e.rank)) for e in case.events}
    arrived: dict[str, int] = {}
    for event in case.events:
        if event.instance:
            arrived[event.instance] = max(arrived.get(event.instance, seen[event.id][0]), seen[event.id][0])
    begin = min(start for start, _ in seen.values())
    new: dict[str, int] = {}

    def start(name: str) -> int:
        if name not in new:
            delay = seen[name][0] - max((seen[source][1] for source in before[name]), default=begin)
            new[name] = max((end(source) for source in before[name]), default=begin) + delay
        return new[name]

    def end(name: str) -> int:
        event = event_of[name]
        if event.instance is None:
            return start(name) + event.dur - (by if faster == name else 0)
        transfer = seen[name][1] - arrived[event.instance] - (by if faster == event.instance else 0)
        return max(start(e.id) for e in case.events if e.instance == event.instance) + transfer

    return {event.id: (start(event.id), end(event.id)) for event in case.events}


def makespan(case: Case, faster: str | None = None, by: int = 0) -> int:
    """Return the time from the first start to the last end of the replay, in ns."""
    times = replayed(case, faster, by).values()
    return max(end for _, end in times) - min(start for start, _ in replayed(case).values())


def random_case(seed: int) -> Case:
    """Return two to four ranks with a compute and a communication lane.

    Collectives are of all ranks or of pairs, and work on one lane may wait for the other.
    """
    rng = random.Random(seed)
    n_ranks = rng.randint(2, 4)
    offsets = (0, *(rng.randint(-50_000, 50_000) for _ in range(n_ranks - 1)))
    at = {(rank, lane): rng.randint(0, 30_000) for rank in range(n_ranks) for lane in (0, 1)}
    events: list[Event] = []
    deps: list[tuple[str, str]] = []
    for name, group in _rounds(rng, n_ranks):
        arriving = []
        for rank in group:
            for _ in range(rng.randint(0, 3)):
                arriving_at = at[rank, 0] + rng.randint(0, 3_000)
                events.append(Event(f"k{len(events)}", rank, 0, arriving_at, rng.randint(1_000, 90_000)))
                at[rank, 0] = events[-1].end
            computed = [event for event in events if event.rank == rank and event.lane == 0]
            lane = 1 if computed and rng.random() < 0.7 else 0
            ready = at[rank, lane]
            if lane == 1 and rng.random() < 0.8:
                deps.append((computed[-1].id, f"{name}r{rank}"))
                ready = max(ready, computed[-1].end)
            arriving.append(Event(f"{name}r{rank}", rank, lane, ready + rng.randint(0, 2_000), 0, name))
        over = max(event.start for event in arriving) + rng.randint(1_000, 40_000)
        for event in arriving:
            events.append(replace(event, dur=over - event.start))
            at[event.rank, event.lane] = over
            if event.lane == 1 and rng.random() < 0.6:
                start = max(at[event.rank, 0], over) + rng.randint(0, 2_000)
                events.append(Event(f"k{len(events)}", event.rank, 0, start, rng.randint(1_000, 60_000)))
                deps.append((event.id, events[-1].id))
                at[event.rank, 0] = events[-1].end
    shown = (replace(event, start=event.start + offsets[event.rank]) for event in events)
    return Case(tuple(shown), tuple(deps), offsets)


def _rounds(rng: random.Random, n_ranks: int) -> Iterator[tuple[str, list[int]]]:
    for number in range(rng.randint(2, 6)):
        everyone = list(range(n_ranks))
        yield f"c{number}", everyone if n_ranks == 2 or rng.random() < 0.6 else sorted(rng.sample(everyone, 2))
