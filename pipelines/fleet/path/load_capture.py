"""The graphs of a capture's ranks for what-if, read from a lake or computed from the traces."""

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
from pipelines.critical_path.whatif.owners import owners_of
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import names_causes, owner_kinds
from pipelines.critical_path.whatif.trace_gaps import unseen_waits
from pipelines.critical_path.whatif.window import WINDOW_TABLES, load
from pipelines.fleet.collectives.evidence import evidence_of
from pipelines.fleet.path.capture_walks import JoinableRank, instances_of, ranks_of
from pipelines.fleet.path.drift import drifting_ranks
from pipelines.fleet.path.retimed import RankedWindow, Retimed, retimed
from pipelines.lake.read.one_trace import refuse_digest
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import parquet_rows, quoted

if TYPE_CHECKING:
    from pipelines.lake import Lake

TABLES = ("captures", "capture_ranks", "clock_offsets", "collectives", "collective_ranks", "collective_groups")
"""Tables that `load_capture` reads, in addition to the tables of the traces."""


class NotJoined(TracelakeError, LookupError):
    """A capture whose ranks meet in no collective. The message names the tables with the reasons."""

    hint = "For one rank: its trace; of a file of several processes, --process PID."


def load_capture(
    con: duckdb.DuckDBPyConnection, capture_id: str, lake: Lake | None, scenarios: Sequence[Scenario]
) -> Retimed:
    """Join the graphs of a capture's ranks.

    Read up-to-date graphs from `lake`. Compute the other graphs from `traces`, `events` and `findings` of the lake, or
    of `con` without a lake. `scenarios`: the scenarios to be retimed later. If they name operators, modules, layers or
    causes, also load these. Raise NotJoined, NoGraph, GraphHasCycle, BrokenFiles or OnlyDigest.
    """
    refuse_digest(con, capture_id)
    instances, ranks = instances_of(con, capture_id), ranks_of(con, capture_id)
    if not instances:
        raise NotJoined(
            "the capture's ranks meet in no collective (tables capture_quality and collective_groups say why)"
        )
    drifts = drifting_ranks(con, capture_id)
    windows = [replace(window, drift=drifts.get(window.rank)) for window in _windows(con, ranks, lake, scenarios)]
    caveats = (*_left_out(con, capture_id, ranks), *_drifting(drifts), *_unseen(windows))
    return replace(retimed(windows, instances), caveats=caveats, matched_by=tuple(evidence_of(con, capture_id)))


def _unseen(windows: Iterable[RankedWindow]) -> Iterator[str]:
    ranks_by_detail: dict[str, list[str]] = {}
    for window in windows:
        for caveat in unseen_waits(window.window):
            ranks_by_detail.setdefault(caveat["detail"], []).append(str(window.rank))
    for detail, ranks in ranks_by_detail.items():
        yield f"{detail} (ranks {', '.join(ranks)})"


def _left_out(con: duckdb.DuckDBPyConnection, capture_id: str, ranks: Sequence[JoinableRank]) -> Iterator[str]:
    of_capture = (
        f"capture_id = {quoted(capture_id)} AND rank IS NOT NULL"  # table capture_quality reports files without a rank
    )
    query = f"SELECT DISTINCT rank FROM capture_ranks WHERE {of_capture} ORDER BY rank"
    joined = {rank.rank for rank in ranks}
    left_out = [str(rank) for (rank,) in con.execute(query).fetchall() if rank not in joined]
    if left_out:
        yield f"ranks that are left out, as their clocks or traces cannot be joined: {', '.join(left_out)}"


def _drifting(ranks: Iterable[int]) -> Iterator[str]:
    """Yield a caveat about ranks whose clocks drift, if there are any.

    The drift is removed from common times, but not from durations, which are measured on the rank's own clock.
    """
    if drifting := sorted(ranks):
        yield f"ranks whose clocks drift, which this answer does not correct: {', '.join(map(str, drifting))}"


def _windows(
    con: duckdb.DuckDBPyConnection, ranks: Iterable[JoinableRank], lake: Lake | None, scenarios: Sequence[Scenario]
) -> list[RankedWindow]:
    windows: list[RankedWindow] = []
    catalog = lake.catalog() if lake else load_catalog()
    for rank in ranks:
        with _stored(lake, rank.trace_id) if lake else _alone(con, rank.trace_id) as trace_con:
            window = load(trace_con, load_catalog(), WindowRequest(rank.trace_id))
            if any(map(owner_kinds, scenarios)):
                window = replace(window, owners=owners_of(trace_con, catalog, rank.trace_id))
            if any(map(names_causes, scenarios)):
                window = replace(window, causes=causes_of(trace_con, catalog, window))
        # Drop named stretches, which need the now closed connection. Names are then searched only in the graph.
        windows.append(RankedWindow(rank.rank, replace(window, named_stretches=None), rank.offset_ns))
    return windows


@contextmanager
def _stored(lake: Lake, trace_id: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with views of one trace in a lake, including its edges if they are up to date."""
    from pipelines.lake.read.one_trace import show_trace

    with database.connect() as trace_con:
        show_trace(trace_con, lake, trace_id, lake.known_traces()[trace_id], WINDOW_TABLES)
        yield trace_con


@contextmanager
def _alone(con: duckdb.DuckDBPyConnection, trace_id: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a separate connection with the tables of one trace, because a published lake's connection is read-only."""
    with tempfile.TemporaryDirectory(prefix="tracelake-") as folder, database.connect() as trace_con:
        for table in ("traces", "events", "findings"):
            file = Path(folder, f"{table}.parquet")
            rows = f"SELECT * FROM {table} WHERE trace_id = {quoted(trace_id)}"
            con.execute(f"COPY ({rows}) TO {quoted(file)} (FORMAT parquet, COMPRESSION lz4)")
            trace_con.execute(f"CREATE VIEW {table} AS FROM {parquet_rows(file)}")
        yield trace_con
