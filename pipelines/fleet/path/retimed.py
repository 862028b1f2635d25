"""Scenarios over a capture, in which all ranks are retimed together in their joined graph.

A collective's kernel ends when the last rank has arrived and the transfer is done. If work on the last rank becomes
faster, the other ranks therefore wait less, until another rank is the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.causes.removed import Removed
from pipelines.critical_path.graph.bounds import HOST as HOST_CLASS
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.whatif.before_after import Path as LongestPath
from pipelines.critical_path.whatif.before_after import Weights
from pipelines.critical_path.whatif.change import changed
from pipelines.critical_path.whatif.overlap import hidden_communication
from pipelines.critical_path.whatif.owners import unselected
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.shared_gpu import changes_work, overlap_percent, overlap_text
from pipelines.critical_path.whatif.targets import NothingMatches, change_of, owner_kinds
from pipelines.critical_path.whatif.timeline import Flags, Floats
from pipelines.critical_path.whatif.trace_gaps import LACKING, long_gaps
from pipelines.critical_path.whatif.window import Window
from pipelines.fleet.path.drift import Points, on_common_clock
from pipelines.fleet.path.joined import Instance, JoinedGraph, join_ranks
from pipelines.fleet.path.rank_graph import CPU, FRAME, GPU, RankGraph, rank_graph

_MOST_RANKS = 4
"""Maximum number of ranks that a caveat names."""


@dataclass(frozen=True)
class CaptureGain:
    """The result of a scenario over a capture, with its length before and after, us. Retimed defines the length.

    `ranks`: the end of each rank's last event (before, after), us from the start of the capture. `inferred_waits`:
    number of waits in the graphs that no cuda_sync row records. `caveats`: sentences about the limits of the numbers.
    `matched_by`: the evidence that matches the capture's collectives.
    """

    scenario: Scenario
    before_us: float
    after_us: float
    ranks: dict[int, tuple[float, float]] = field(default_factory=dict)
    inferred_waits: int = 0
    caveats: tuple[str, ...] = ()
    matched_by: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "before": {"length_us": self.before_us},
            "after": {"length_us": self.after_us},
            "ranks": {
                str(rank): {"before_us": before_us, "after_us": after_us}
                for rank, (before_us, after_us) in self.ranks.items()
            },
            "inferred_waits": self.inferred_waits,
            "caveats": [{"severity": "info", "detail": caveat} for caveat in self.caveats],
            "matched_by": list(self.matched_by),
        }


@dataclass(frozen=True)
class RankedWindow:
    """A rank's window for retiming. `offset_ns`: the lead of its clock. `drift`: two points, if its clock drifts."""

    rank: int
    window: Window
    offset_ns: int
    drift: Points | None = None

    def graph(self) -> RankGraph:
        """Return the rank's graph for joining. Its edges are the window's edges, sorted by destination."""
        events, graph = self.window.events, self.window.graph
        index, is_end = np.searchsorted(events.event_id, graph.node_ids // 2), graph.node_ids % 2 == 1
        is_frame = events.of_families(lambda event_class, _: event_class == HOST_CLASS)
        side = np.where(self.window.timeline.is_work, GPU, np.where(is_frame, FRAME, CPU))[index]
        nodes = {"node": graph.node_ids, "at_ns": events.ts[index] + events.dur[index] * is_end, "side": side}
        edges = {"src": graph.node_ids[graph.src], "dst": graph.node_ids[graph.dst], "weight": graph.weight}
        zeros = dict.fromkeys(("code", "attributed", "owner", "flags"), np.zeros(len(graph.src)))
        graph_on_own_clock = rank_graph(self.rank, self.window.trace_id, nodes, {**edges, **zeros})
        return (
            on_common_clock(graph_on_own_clock, self.drift) if self.drift else graph_on_own_clock.behind(self.offset_ns)
        )


Indices = npt.NDArray[np.integer]
"""Integers of 32 bits if they suffice, because a capture has millions of edges."""


@dataclass(frozen=True)
class Retimed:
    """The joined graph of a capture for scenarios. Nodes without incoming edges begin at `begin` (n,), ns.

    `of`: the index of each edge's rank. `edge`: the index of each edge among its rank's edges, or -1 for an edge into a
    collective, which takes no time. An edge out of a collective has the index of the kernel's own edge.

    The length of a capture is the time from the start of its first operator, call or GPU work to the end of its last
    GPU work, as on its path. Without GPU work, it ends with the last event. `first` and `last`: the candidates for
    these two nodes.
    """

    ranks: list[RankedWindow]
    graph: ArrayGraph
    begin: Ints
    edge: Indices
    of: Indices
    first: Indices
    last: Indices
    caveats: tuple[str, ...] = ()
    matched_by: tuple[str, ...] = ()

    def gain(self, scenario: Scenario) -> CaptureGain:
        """Return the gain of a scenario. Raise NothingMatches.

        The target `rank:2:NAME` selects NAME on one rank only.
        """
        change = self._change(scenario)
        before, after = self._before, self._at(change)
        bounds = np.cumsum([0, *(len(rank_window.window.graph) for rank_window in self.ranks)])
        ranks = {
            rank_window.rank: tuple(
                float(node_ns[bounds[number] : bounds[number + 1]].max() - self._start) / 1000
                for node_ns in (before, after)
            )
            for number, rank_window in enumerate(self.ranks)
        }
        lengths = (self.length_ns / 1000, self._length(after, change) / 1000)
        n_inferred = sum(rank_window.window.n_inferred for rank_window in self.ranks)
        lacking = self._lacking((change.factor < 1) | change.gone)
        caveats = (*self.caveats, *self._unselected(scenario), *lacking, *self._overlapping(change))
        return CaptureGain(scenario, *lengths, ranks, n_inferred, caveats, self.matched_by)  # type: ignore[arg-type]

    @property
    def length_ns(self) -> int:
        """Return the length of the unchanged capture."""
        return self._takes(self._before)

    def saved_ns(self, scenario: Scenario) -> int:
        """Return by how much a scenario shortens the capture, ns. Raise NothingMatches."""
        change = self._change(scenario)
        return self.length_ns - self._length(self._at(change), change)

    def removed(self, scenario: Scenario) -> Removed:
        """Return the edges of the joined graph that a scenario removes or shortens. Raise NothingMatches."""
        dst_ns = np.zeros(len(self.of), dtype=np.int64)
        for rank_edges, rank_window in zip(self._edges, self.ranks, strict=True):
            dst_ns[rank_edges] = rank_window.window.timeline.dst_ns[self.edge[rank_edges]]
        return Removed.by(self._change(scenario), self.graph, dst_ns)

    def shared_gpu(self, scenario: Scenario) -> str | None:
        """Return the caveat about overlapping streams whose GPU work changes, or None. Raise NothingMatches."""
        if not any(self._overlap_percents):  # saves applying the scenario again
            return None
        return next(self._overlapping(self._change(scenario)), None)

    @cached_property
    def _start(self) -> int:
        """Return the start of the unchanged capture, ns. The length of a changed capture is also measured from it."""
        return int(self._before[self.first].min())

    def _takes(self, node_ns: Ints) -> int:
        return int(node_ns[self.last].max()) - self._start

    def _length(self, node_ns: Ints, change: _Change) -> int:
        """Return the length of the changed capture, ns, at least the time of the work done ahead.

        The time of the work done ahead is limited to the unchanged length. A rank's work before the capture's first
        operator, such as loading the first batch, is not in that length.
        """
        return max(self._takes(node_ns), min(change.ahead_ns, self.length_ns))

    @cached_property
    def _edges(self) -> list[Indices]:
        """Return the indices of each rank's edges in the joined graph."""
        return [np.flatnonzero(self.of == number).astype(np.int32) for number in range(len(self.ranks))]

    @cached_property
    def _before(self) -> Ints:
        return self.graph.forward(self.graph.weight, self.begin)

    def _at(self, change: _Change) -> Ints:
        """Return the time of each node after a change, ns.

        Only frames may start before the capture does, because time before its start is not in its length.
        """
        weight = changed(self.graph.weight, self.graph.dst, change.factor, change.gone)
        node_ns = self.graph.forward(weight, self.begin)
        if node_ns[self.first].min() < self._start:
            weight[self._leading] = 0
            node_ns = np.maximum(node_ns, self.graph.forward(weight, np.full_like(self.begin, self._start)))
        return node_ns

    @cached_property
    def _leading(self) -> Indices:
        """Return the indices of the edges from frames that no operator, call or GPU work of their rank precedes."""
        is_first = np.zeros(len(self.begin), dtype=np.int64)
        is_first[self.first] = 1
        n_before = is_first + self.graph.forward(is_first[self.graph.src])
        return np.flatnonzero(n_before[self.graph.src] == 0).astype(np.int32)

    def _change(self, scenario: Scenario) -> _Change:
        """Return the change of all edges. Raise NothingMatches for a target that matches on no rank."""
        change = _Change(np.ones(len(self.of)), np.zeros(len(self.of), dtype=bool))
        parts = [*scenario.scale, *((target, None) for target in scenario.ahead)]
        matching, missing = set[str](), dict[str, NothingMatches]()
        for number, rank_window in enumerate(self.ranks):
            rank_edges, scale, ahead = self._edges[number], [], []
            for target, factor in parts:
                try:
                    on_rank = _on_rank(target, rank_window.rank)
                except NothingMatches as error:
                    missing.setdefault(target, error)
                    continue
                try:  # work that is done ahead is removed from the window
                    rank_change = change_of(rank_window.window, Scenario(((on_rank, factor or 0.0),)))
                except NothingMatches as error:
                    missing[target] = error  # this message lists the rank's names
                    continue
                matching.add(target)
                if factor is None:
                    ahead.append(on_rank)
                else:
                    scale.append((on_rank, factor))
                change.factor[rank_edges] *= rank_change.factor[self.edge[rank_edges]]
                change.gone[rank_edges] |= rank_change.gone[self.edge[rank_edges]]
            if ahead:
                on_rank_alone = Scenario(tuple(scale), ahead=tuple(ahead))
                change.ahead_ns = max(change.ahead_ns, _ahead_ns(rank_window.window, on_rank_alone))
        for target, error in missing.items():
            if target not in matching:
                raise error
        if scenario.perfect_overlap:
            self._overlap(change)
        return change

    def _overlap(self, change: _Change) -> None:
        """Hide as much of each rank's communication as its computation can overlap.

        A collective's duration counts from the arrival of the last rank.
        """
        for rank_edges, rank_window in zip(self._edges, self.ranks, strict=True):
            window, edges = rank_window.window, self.edge[rank_edges]
            event = window.own_time_of[edges]
            durations, factor = window.events.dur.copy(), np.ones(len(window.kind))
            # Exclude edges to another event, such as the start of other work. Their weight is not the event's whole
            # duration.
            is_whole = (event >= 0) & (window.src_event[edges] == window.dst_event[edges])
            durations[event[is_whole]] = self.graph.weight[rank_edges[is_whole]]
            factor[edges[edges >= 0]] = change.factor[rank_edges[edges >= 0]]
            change.factor[rank_edges] *= hidden_communication(window, factor, durations)[edges]

    def _unselected(self, scenario: Scenario) -> Iterator[str]:
        """Yield a caveat for each kind of owner in the scenario for which GPU time of a rank has no known owner.

        No target of this kind can select this time.
        """
        for kind in owner_kinds(scenario):
            owners = [rank_window.window.owners for rank_window in self.ranks]
            if max_percent := max(owner.unknown_percent[kind] for owner in owners if owner):
                yield f"up to {max_percent:.1f} % of a rank's GPU time {unselected(kind)}"

    def _lacking(self, less: Flags) -> Iterator[str]:
        """Yield a caveat if the gain comes from gaps in ranks' paths where events may be missing from their traces."""
        idle_us: dict[int, float] = {}
        for number, rank_window in enumerate(self.ranks):
            window, shorter = rank_window.window, self.edge[(self.of == number) & less]
            if not len(long_gaps(window, shorter, window.graph.weight)):
                continue
            path = LongestPath.under(window, Weights(window.graph.weight, window.duration))
            if np.isin(path.long_gaps, shorter).any():
                for caveat in path.idle_gaps:
                    idle_us[rank_window.rank] = caveat["time_us"]
        if idle_us:
            ranks_by_gap = sorted(idle_us, key=lambda rank: -idle_us[rank])
            clauses = [
                f"{round(idle_us[rank] / 1000, 2)} ms of the path of rank {rank}" for rank in ranks_by_gap[:_MOST_RANKS]
            ]
            more = f" and less of {len(ranks_by_gap) - _MOST_RANKS} more" if len(ranks_by_gap) > _MOST_RANKS else ""
            yield f"{', '.join(clauses)}{more} {LACKING}"

    @cached_property
    def _overlap_percents(self) -> list[float]:
        """Return the `overlap_percent` of each rank's window."""
        return [overlap_percent(rank_window.window) for rank_window in self.ranks]

    def _overlapping(self, change: _Change) -> Iterator[str]:
        """Yield a caveat if streams overlap on ranks whose GPU work is changed."""
        percents: dict[int, float] = {}
        for rank_edges, rank_window, percent in zip(self._edges, self.ranks, self._overlap_percents, strict=True):
            if not percent:
                continue
            changed, edges = np.zeros(len(rank_window.window.kind), dtype=bool), self.edge[rank_edges]
            changed[edges[(edges >= 0) & (change.factor[rank_edges] != 1)]] = True
            if changes_work(rank_window.window, changed):
                percents[rank_window.rank] = percent
        if percents:
            ranks = ", ".join(map(str, [*percents][:_MOST_RANKS]))
            more = f" and {len(percents) - _MOST_RANKS} more" if len(percents) > _MOST_RANKS else ""
            most = max(percents.values())
            yield overlap_text(f"up to {most:.1f} % of a trace", f"ranks {ranks}{more}")


@dataclass
class _Change:
    """The change of the joined graph's edges, (m,), with the fields of a window's Change."""

    factor: Floats
    gone: Flags
    ahead_ns: int = 0


def _on_rank(target: str, rank: int) -> str:
    """Return a target without its prefix `rank:N:`. Raise NothingMatches if the prefix names another rank."""
    prefix, _, after_prefix = target.partition(":")
    number, colon, inner = after_prefix.partition(":")
    if prefix != "rank" or not colon:
        return target
    if number != str(rank):
        raise NothingMatches(f"{target!r} matches nothing in this capture: it has no rank {number}")
    return inner


def _ahead_ns(window: Window, scenario: Scenario) -> int:
    """Return the duration of the work that a scenario does ahead on a rank, after the other changes, ns.

    Timing this work sorts the rank's own graph. The order is dropped, because no other code here needs it, and the
    orders of all ranks would take an eighth of the memory of a capture with fixes.
    """
    ahead_ns = change_of(window, scenario).ahead_ns
    vars(window.graph).pop("chains", None)
    return ahead_ns


def retimed(ranks: list[RankedWindow], instances: Sequence[Instance]) -> Retimed:
    """Join the graphs of ranks, ordered by rank, at the collectives that at least two of them contain.

    Raise GraphHasCycle.
    """
    order = [np.argsort(rank.window.graph.dst, kind="stable") for rank in ranks]
    return of_joined(ranks, join_ranks([rank.graph() for rank in ranks], instances), order)


def of_joined(ranks: list[RankedWindow], joined: JoinedGraph, order: Sequence[Ints]) -> Retimed:
    """Return the joined graph of ranks, ordered by rank, for scenarios.

    `order`: for each rank (m,), the index in the window of each edge of the rank's graph.
    """
    graph, begin, owner = joined.timed()
    first_edge, window_edge = np.cumsum([0, *map(len, order)]), np.concatenate(order)
    edge = np.where(owner < 0, -1, window_edge[owner]).astype(np.int32)
    rank_index = (np.searchsorted(first_edge, owner, "right") - 1).astype(np.int32)
    del window_edge, owner
    side = np.concatenate([graph.side for graph in joined.ranks])
    first_nodes, gpu_nodes = (np.flatnonzero(nodes).astype(np.int32) for nodes in (side != FRAME, side == GPU))
    last_nodes = gpu_nodes if len(gpu_nodes) else np.arange(len(side), dtype=np.int32)
    return Retimed(ranks, graph, begin, edge, rank_index, first_nodes, last_nodes)
