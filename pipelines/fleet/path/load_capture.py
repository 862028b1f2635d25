"""The graphs of a capture's ranks for what-if: those that a lake has stored, else computed from the traces."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.critical_path.causes.of_window import causes_of
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif.lacking import unseen_waits
from pipelines.critical_path.whatif.owners import owners_of
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import names_causes, owner_kinds
from pipelines.critical_path.whatif.window import WINDOW_TABLES, load
from pipelines.fleet.collectives.evidence import evidence_of
from pipelines.fleet.path.capture_walks import JoinableRank, instances_of, ranks_of
from pipelines.fleet.path.drift import drifting_ranks
from pipelines.fleet.path.retimed import RankedWindow, Retimed, retimed
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    from pipelines.lake import Lake

TABLES = ("captures", "capture_ranks", "clock_offsets", "collectives", "collective_ranks", "collective_groups")
"""What `load_capture` reads, besides the traces' own tables."""


class NotJoined(TracelakeError, LookupError):
    """The capture has no ranks that meet; the message says what is missing."""

    hint = "For one rank: its trace; of a file of several processes, --process PID."


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
    drifts = drifting_ranks(con, capture_id)
    windows = [replace(one, drift=drifts.get(one.rank)) for one in _windows(con, ranks, lake, scenarios)]
    caveats = (*_left_out(con, capture_id, ranks), *_drifting(drifts), *_unseen(windows))
    return replace(retimed(windows, instances), caveats=caveats, matched_by=tuple(evidence_of(con, capture_id)))


def _unseen(windows: Iterable[RankedWindow]) -> Iterator[str]:
    told: dict[str, list[str]] = {}
    for one in windows:
        for caveat in unseen_waits(one.window):
            told.setdefault(caveat["detail"], []).append(str(one.rank))
    for detail, ranks in told.items():
        yield f"{detail} (ranks {', '.join(ranks)})"


def _left_out(con: duckdb.DuckDBPyConnection, capture_id: str, ranks: Sequence[JoinableRank]) -> Iterator[str]:
    query = f"SELECT DISTINCT rank FROM capture_ranks WHERE capture_id = {quoted(capture_id)} ORDER BY rank"
    joined = {rank.rank for rank in ranks}
    left = [str(rank) for (rank,) in con.execute(query).fetchall() if rank not in joined]
    if left:
        yield f"ranks that are left out, as their clocks or traces cannot be joined: {', '.join(left)}"


def _drifting(ranks: Iterable[int]) -> Iterator[str]:
    """Common times follow the drift; what work takes is told by the rank's own clock."""
    if drifting := sorted(ranks):
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
