"""What if one rank were faster? All ranks of a capture retimed together: each by its own graph, tied at their collectives.

A collective's kernel ends when the last rank has arrived and the transfer is done; so work that is made faster on one rank
makes the others wait less, until another rank is the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pipelines.critical_path.graph.bounds import HOST as HOST_CLASS
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints
from pipelines.critical_path.whatif.before_after import Path as LongestPath
from pipelines.critical_path.whatif.before_after import Weights
from pipelines.critical_path.whatif.change import changed
from pipelines.critical_path.whatif.lacking import LACKING, long_gaps
from pipelines.critical_path.whatif.overlap import hidden_communication
from pipelines.critical_path.whatif.owners import unselected
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches, change_of, owner_kinds
from pipelines.critical_path.whatif.timeline import Flags, Floats
from pipelines.critical_path.whatif.window import Window
from pipelines.fleet.path.drift import Points, on_common_clock
from pipelines.fleet.path.joined import Instance, JoinedGraph, join_ranks
from pipelines.fleet.path.rank_graph import CPU, FRAME, GPU, RankGraph, rank_graph

_TOLD = 4
"""Ranks that a caveat names."""


@dataclass(frozen=True)
class CaptureGain:
    """A scenario over a capture: how long it takes before and after, as its path does (Retimed), and when the last event of each rank
    ends, us since then.

    `inferred_waits`: how many waits of the graphs no cuda_sync row tells. `caveats`: sentences on what the numbers lack.
    `matched_by`: the evidence that its collectives are matched by.
    """

    scenario: Scenario
    before_us: float
    after_us: float
    ranks: dict[int, tuple[float, float]] = field(default_factory=dict)
    inferred_waits: int = 0
    caveats: tuple[str, ...] = ()
    matched_by: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        return {
            "before": {"length_us": self.before_us},
            "after": {"length_us": self.after_us},
            "ranks": {str(rank): {"before_us": one, "after_us": other} for rank, (one, other) in self.ranks.items()},
            "inferred_waits": self.inferred_waits,
            "caveats": list(self.caveats),
            "matched_by": list(self.matched_by),
        }


@dataclass(frozen=True)
class RankedWindow:
    """The graph of one rank with what a scenario asks of it: `offset_ns`, how far its clock is ahead; `drift`, if that changes."""

    rank: int
    window: Window
    offset_ns: int
    drift: Points | None = None

    def graph(self) -> RankGraph:
        """Returns what joins it to others; its edges are those of the window, sorted by where they lead to."""
        events, graph = self.window.events, self.window.graph
        place, is_end = np.searchsorted(events.event_id, graph.node_ids // 2), graph.node_ids % 2 == 1
        is_frame = events.of_families(lambda known, _: known == HOST_CLASS)
        side = np.where(self.window.timeline.is_work, GPU, np.where(is_frame, FRAME, CPU))[place]
        nodes = {"node": graph.node_ids, "at_ns": events.ts[place] + events.dur[place] * is_end, "side": side}
        edges = {"src": graph.node_ids[graph.src], "dst": graph.node_ids[graph.dst], "weight": graph.weight}
        untold = dict.fromkeys(("code", "attributed", "owner", "flags"), np.zeros(len(graph.src)))
        found = rank_graph(self.rank, self.window.trace_id, nodes, {**edges, **untold})
        return on_common_clock(found, self.drift) if self.drift else found.behind(self.offset_ns)


@dataclass(frozen=True)
class Retimed:
    """All graphs of a capture as one, whose nodes without edges in begin at `begin` (n,). `of`: for each edge the number of its rank, `edge`:
    its place among the rank's edges; -1 for those into collectives, which have no time. Those out of them stand for the kernel's own edge.

    A capture takes from the start of its first operator, call or GPU work to the end of its last GPU work, as its path does; without GPU
    work to its last event. `first` and `last`: the nodes that may be these.
    """

    ranks: list[RankedWindow]
    graph: ArrayGraph
    begin: Ints
    edge: Ints
    of: Ints
    first: Ints
    last: Ints
    caveats: tuple[str, ...] = ()
    matched_by: tuple[str, ...] = ()

    def gain(self, scenario: Scenario) -> CaptureGain:
        """Returns what a scenario gains. `rank:2:NAME` names something on one rank. Raises NothingMatches."""
        change = self._change(scenario)
        before, after = self._before, self._at(change)
        bounds = np.cumsum([0, *(len(one.window.graph) for one in self.ranks)])
        ranks = {
            one.rank: tuple(
                float(at[bounds[i] : bounds[i + 1]].max() - self._start(at)) / 1000 for at in (before, after)
            )
            for i, one in enumerate(self.ranks)
        }
        lengths = (self.length_ns / 1000, max(self._takes(after), change.ahead_ns) / 1000)
        n_inferred = sum(one.window.n_inferred for one in self.ranks)
        caveats = (*self.caveats, *self._unselected(scenario), *self._lacking((change.factor < 1) | change.gone))
        return CaptureGain(scenario, *lengths, ranks, n_inferred, caveats, self.matched_by)  # type: ignore[arg-type]

    @property
    def length_ns(self) -> int:
        """Returns how long the capture takes as it is."""
        return self._takes(self._before)

    def saved_ns(self, scenario: Scenario) -> int:
        """Returns what the capture is shorter under a scenario. Raises NothingMatches."""
        change = self._change(scenario)
        return self.length_ns - max(self._takes(self._at(change)), change.ahead_ns)

    def _start(self, at: Ints) -> int:
        return int(at[self.first].min())

    def _takes(self, at: Ints) -> int:
        return int(at[self.last].max()) - self._start(at)

    @cached_property
    def _edges(self) -> list[Ints]:
        """The places of each rank's edges."""
        return [np.flatnonzero(self.of == number) for number in range(len(self.ranks))]

    @cached_property
    def _before(self) -> Ints:
        return self.graph.forward(self.graph.weight, self.begin)

    def _at(self, change: _Change) -> Ints:
        return self.graph.forward(changed(self.graph.weight, self.graph.dst, change.factor, change.gone), self.begin)

    def _change(self, scenario: Scenario) -> _Change:
        """Raises NothingMatches for what no rank has."""
        change = _Change(np.ones(len(self.of)), np.zeros(len(self.of), dtype=bool))
        parts = [(target, Scenario(((target, by),))) for target, by in scenario.scale]
        parts += [(target, Scenario(ahead=(target,))) for target in scenario.ahead]
        missing = dict[str, NothingMatches]()
        for number, of_rank in enumerate(self.ranks):
            mine = self._edges[number]
            for target, part in parts:
                try:
                    on_rank = _on_rank(target, part, of_rank.rank)
                except NothingMatches as error:
                    missing.setdefault(target, error)
                    continue
                try:
                    own = change_of(of_rank.window, on_rank)
                except NothingMatches as error:
                    missing[target] = error  # it says what that rank has
                    continue
                change.factor[mine] *= own.factor[self.edge[mine]]
                change.gone[mine] |= own.gone[self.edge[mine]]
                change.ahead_ns = max(change.ahead_ns, own.ahead_ns)
        if scenario.perfect_overlap:
            self._overlap(change)
        if (
            missing
            and len(missing) == len({target for target, _ in parts})
            and (change.factor == 1).all()
            and not change.gone.any()
        ):
            raise next(iter(missing.values()))
        return change

    def _overlap(self, change: _Change) -> None:
        """Hide of each rank's communication what its computation can: of a collective the time since the last rank arrived."""
        for mine, of_rank in zip(self._edges, self.ranks, strict=True):
            window, place = of_rank.window, self.edge[mine]
            event = window.own_time_of[place]
            takes = window.events.dur.copy()
            takes[event[event >= 0]] = self.graph.weight[mine[event >= 0]]
            change.factor[mine] *= hidden_communication(window, takes)[place]

    def _unselected(self, scenario: Scenario) -> Iterator[str]:
        """The caveat on GPU time that no target of a kind can select."""
        for kind in owner_kinds(scenario):
            owners = [one.window.owners for one in self.ranks]
            if most := max(one.unknown_percent[kind] for one in owners if one):
                yield f"up to {most:.1f} % of a rank's GPU time {unselected(kind)}"

    def _lacking(self, less: Flags) -> Iterator[str]:
        """The caveat that one rank's answer has: the gain is of gaps of a rank's path in which its trace may lack events."""
        idle_us: dict[int, float] = {}
        for number, one in enumerate(self.ranks):
            window, shorter = one.window, self.edge[(self.of == number) & less]
            if not len(long_gaps(window, shorter, window.graph.weight)):
                continue
            path = LongestPath.under(window, Weights(window.graph.weight, window.duration))
            if np.isin(path.long_gaps, shorter).any():
                for caveat in path.idle_gaps:
                    idle_us[one.rank] = caveat["time_us"]
        if idle_us:
            most = sorted(idle_us, key=lambda rank: -idle_us[rank])
            told = [f"{round(idle_us[rank] / 1000, 2)} ms of the path of rank {rank}" for rank in most[:_TOLD]]
            more = f" and less of {len(most) - _TOLD} more" if len(most) > _TOLD else ""
            yield f"{', '.join(told)}{more} {LACKING}"


@dataclass
class _Change:
    """What becomes of the edges of the joined graph (m,), as in Change of a window."""

    factor: Floats
    gone: Flags
    ahead_ns: int = 0


def _on_rank(target: str, part: Scenario, rank: int) -> Scenario:
    """What the scenario of a target is on one rank. Raises NothingMatches where it names another one."""
    prefix, _, rest = target.partition(":")
    number, colon, inner = rest.partition(":")
    if prefix != "rank" or not colon:
        return part
    if number != str(rank):
        raise NothingMatches(f"{target!r} matches nothing in this capture: it has no rank {number}")
    return Scenario(ahead=(inner,)) if part.ahead else Scenario(((inner, part.scale[0][1]),))


def retimed(ranks: list[RankedWindow], instances: Sequence[Instance]) -> Retimed:
    """Join the graphs of ranks, in order, at the collectives that two or more of them have. Raises GraphHasCycle."""
    order = [np.argsort(one.window.graph.dst, kind="stable") for one in ranks]
    return of_joined(ranks, join_ranks([one.graph() for one in ranks], instances), order)


def of_joined(ranks: list[RankedWindow], joined: JoinedGraph, order: Sequence[Ints]) -> Retimed:
    """Returns the joined graph of some ranks, in order, for scenarios. `order`: for each rank the places of its edges in the window by
    their places in the joined graph's rank (m,).
    """
    graph, begin, own = joined.timed()
    first, place = np.cumsum([0, *map(len, order)]), np.concatenate(order)
    edge, of = np.where(own < 0, -1, place[own]), np.searchsorted(first, own, "right") - 1
    side = np.concatenate([graph.side for graph in joined.ranks])
    ends = np.concatenate([graph.node % 2 == 1 for graph in joined.ranks])
    starts, last = np.flatnonzero(side != FRAME), np.flatnonzero((side == GPU) & ends)
    return Retimed(ranks, graph, begin, edge, of, starts, last if len(last) else np.flatnonzero(ends))
