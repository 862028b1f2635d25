"""What if one rank were faster? All ranks of a capture retimed together: each by its own graph, tied at their collectives.

A collective's kernel ends when the last rank has arrived and the transfer is done; so work that is made faster on one rank
makes the others wait less, until another rank is the last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.critical_path.causes.of_window import causes_of
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif.before_after import Path as LongestPath
from pipelines.critical_path.whatif.before_after import Weights
from pipelines.critical_path.whatif.change import changed
from pipelines.critical_path.whatif.lacking import LACKING, long_gaps, unseen_waits
from pipelines.critical_path.whatif.owners import owners_of, unselected
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches, change_of, names_causes, owner_kinds
from pipelines.critical_path.whatif.timeline import Flags, Floats
from pipelines.critical_path.whatif.window import WINDOW_TABLES, Window, load
from pipelines.fleet.collectives.evidence import evidence_of
from pipelines.fleet.path.capture_walks import JoinableRank, instances_of, ranks_of
from pipelines.fleet.path.drift import drifting_ranks
from pipelines.fleet.path.joined import Instance, join_ranks
from pipelines.fleet.path.rank_graph import RankGraph, rank_graph
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    from pipelines.lake import Lake

TABLES = ("captures", "capture_ranks", "clock_offsets", "collectives", "collective_ranks", "collective_groups")
"""What `load_capture` reads, besides the traces' own tables."""


_TOLD = 4
"""Ranks that a caveat names."""


class NotJoined(TracelakeError, LookupError):
    """The capture has no ranks that meet; the message says what is missing."""

    hint = "For one rank: its trace; of a file of several processes, --process PID."


@dataclass(frozen=True)
class CaptureGain:
    """A scenario over a capture: how long it takes before and after, and when each rank ends, us since its first event.

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
    """The graph of one rank with what a scenario asks of it: `offset_ns`, how far its clock is ahead."""

    rank: int
    window: Window
    offset_ns: int

    def graph(self) -> RankGraph:
        """Returns what joins it to others; its edges are those of the window, sorted by where they lead to."""
        events, graph = self.window.events, self.window.graph
        place, is_end = np.searchsorted(events.event_id, graph.node_ids // 2), graph.node_ids % 2 == 1
        nodes = {"node": graph.node_ids, "at_ns": events.ts[place] + events.dur[place] * is_end, "side": 0 * is_end}
        edges = {"src": graph.node_ids[graph.src], "dst": graph.node_ids[graph.dst], "weight": graph.weight}
        untold = dict.fromkeys(("code", "attributed", "owner", "flags"), np.zeros(len(graph.src)))
        return rank_graph(self.rank, self.window.trace_id, nodes, {**edges, **untold}).behind(self.offset_ns)


@dataclass(frozen=True)
class Retimed:
    """All graphs of a capture as one, which begins at `begin`. `of`: for each edge the number of its rank, `edge`: its place among
    the rank's edges; -1 for those into collectives, which have no time. Those out of them stand for the kernel's own edge.
    """

    ranks: list[RankedWindow]
    graph: ArrayGraph
    begin: Ints
    edge: Ints
    of: Ints
    caveats: tuple[str, ...] = ()
    matched_by: tuple[str, ...] = ()

    def gain(self, scenario: Scenario) -> CaptureGain:
        """Returns what a scenario gains. `rank:2:NAME` names something on one rank. Raises NothingMatches."""
        factor, gone = self._changes(scenario)
        weight = self.graph.weight
        after = changed(weight, self.graph.dst, factor, gone)
        before, after = (self.graph.forward(weights, self.begin) for weights in (weight, after))
        start = before.min()
        bounds = np.cumsum([0, *(len(one.window.graph) for one in self.ranks)])
        ranks = {
            one.rank: tuple(float(at[bounds[i] : bounds[i + 1]].max() - start) / 1000 for at in (before, after))
            for i, one in enumerate(self.ranks)
        }
        lengths = (float(at.max() - start) / 1000 for at in (before, after))
        n_inferred = sum(one.window.n_inferred for one in self.ranks)
        caveats = (*self.caveats, *self._unselected(scenario), *self._lacking((factor < 1) | gone))
        return CaptureGain(scenario, *lengths, ranks, n_inferred, caveats, self.matched_by)  # type: ignore[arg-type]

    def _changes(self, scenario: Scenario) -> tuple[Floats, Flags]:
        """Returns the factor of each edge, and whether it is gone. Raises NothingMatches for what no rank has."""
        factor, gone = np.ones(len(self.of)), np.zeros(len(self.of), dtype=bool)
        missing = dict[str, NothingMatches]()
        for number, of_rank in enumerate(self.ranks):
            mine = np.flatnonzero(self.of == number)
            for target, by in scenario.scale:
                try:
                    on_rank = _on_rank(target, by, of_rank.rank)
                except NothingMatches as error:
                    missing.setdefault(target, error)
                    continue
                try:
                    change = change_of(of_rank.window, on_rank)
                except NothingMatches as error:
                    missing[target] = error  # it says what that rank has
                    continue
                factor[mine] *= change.factor[self.edge[mine]]
                gone[mine] |= change.gone[self.edge[mine]]
        if len(missing) == len(dict(scenario.scale)) and (factor == 1).all() and not gone.any():
            raise next(iter(missing.values()))
        return factor, gone

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


def _on_rank(target: str, factor: float, rank: int) -> Scenario:
    """What a target names on one rank. Raises NothingMatches where it names another one."""
    prefix, _, rest = target.partition(":")
    number, colon, inner = rest.partition(":")
    if prefix != "rank" or not colon:
        return Scenario(((target, factor),))
    if number != str(rank):
        raise NothingMatches(f"{target!r} matches nothing in this capture: it has no rank {number}")
    return Scenario(((inner, factor),))


def load_capture(
    con: duckdb.DuckDBPyConnection, capture_id: str, lake: Lake | None = None, scenarios: Sequence[Scenario] = ()
) -> Retimed:
    """Join the graphs of a capture's ranks: those that `lake` has stored and that are up to date, else they are computed from
    `traces`, `events` and `findings` (of the lake, or in `con`). `scenarios`: those that it will be asked for, which may name operators,
    modules, layers or causes. Raises NotJoined, NoGraph, GraphHasCycle and BrokenFiles.
    """
    instances, ranks = instances_of(con, capture_id), ranks_of(con, capture_id)
    if not instances:
        raise NotJoined(
            "the capture's ranks meet in no collective (tables capture_quality and collective_groups say why)"
        )
    windows = _windows(con, ranks, lake, scenarios)
    caveats = (*_caveats(con, capture_id, ranks), *_unseen(windows))
    return replace(retimed(windows, instances), caveats=caveats, matched_by=tuple(evidence_of(con, capture_id)))


def _unseen(windows: Iterable[RankedWindow]) -> Iterator[str]:
    told: dict[str, list[str]] = {}
    for one in windows:
        for caveat in unseen_waits(one.window):
            told.setdefault(caveat["detail"], []).append(str(one.rank))
    for detail, ranks in told.items():
        yield f"{detail} (ranks {', '.join(ranks)})"


def _caveats(con: duckdb.DuckDBPyConnection, capture_id: str, ranks: Sequence[JoinableRank]) -> Iterator[str]:
    query = f"SELECT DISTINCT rank FROM capture_ranks WHERE capture_id = {quoted(capture_id)} ORDER BY rank"
    joined = {rank.rank for rank in ranks}
    left = [str(rank) for (rank,) in con.execute(query).fetchall() if rank not in joined]
    if left:
        yield f"ranks that are left out, as their clocks or traces cannot be joined: {', '.join(left)}"
    drifting = sorted(drifting_ranks(con, capture_id))
    if drifting:
        yield f"ranks whose clocks drift, which this answer does not correct: {', '.join(map(str, drifting))}"


def _windows(
    con: duckdb.DuckDBPyConnection, ranks: Iterable[JoinableRank], lake: Lake | None, scenarios: Sequence[Scenario]
) -> list[RankedWindow]:
    found: list[RankedWindow] = []
    for rank in ranks:
        with _stored(lake, rank.trace_id) if lake else _alone(con, rank.trace_id) as own:
            window = load(own, load_catalog(), WindowRequest(rank.trace_id))
            if any(map(owner_kinds, scenarios)):
                window = replace(window, owners=owners_of(own, load_catalog(), rank.trace_id))
            if any(map(names_causes, scenarios)):
                window = replace(window, causes=causes_of(own, load_catalog(), window))
        # The connection is closed: names are looked up in the graph alone.
        found.append(RankedWindow(rank.rank, replace(window, named_stretches=None), rank.offset_ns))
    return found


@contextmanager
def _stored(lake: Lake, trace_id: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a connection with views of one trace in a lake, and of its edges where they are up to date."""
    from pipelines.lake.read.one_trace import show_trace

    with database.connect() as own:
        show_trace(own, lake, trace_id, lake.known_traces()[trace_id], WINDOW_TABLES)
        yield own


@contextmanager
def _alone(con: duckdb.DuckDBPyConnection, trace_id: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a connection of its own with the tables of one trace: that of a published lake only reads."""
    with tempfile.TemporaryDirectory(prefix="tracelake-") as folder, database.connect() as own:
        for table in ("traces", "events", "findings"):
            file = Path(folder, f"{table}.parquet")
            rows = f"SELECT * FROM {table} WHERE trace_id = {quoted(trace_id)}"
            con.execute(f"COPY ({rows}) TO {quoted(file)} (FORMAT parquet, COMPRESSION lz4)")
            own.execute(f"CREATE VIEW {table} AS FROM read_parquet({quoted(file)})")
        yield own


def retimed(ranks: list[RankedWindow], instances: Sequence[Instance]) -> Retimed:
    """Join the graphs of ranks, in order, at the collectives that two or more of them have. Raises GraphHasCycle."""
    graph, begin, own = join_ranks([one.graph() for one in ranks], instances).timed()
    order = np.concatenate([np.argsort(one.window.graph.dst, kind="stable") for one in ranks])
    first = np.cumsum([0, *(len(one.window.graph.src) for one in ranks)])
    return Retimed(ranks, graph, begin, np.where(own < 0, -1, order[own]), np.searchsorted(first, own, "right") - 1)
