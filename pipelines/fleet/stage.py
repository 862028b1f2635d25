"""Captures as given tables in a connection: what sql/fleet/ reads beside the tables of traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import duckdb

from pipelines.fleet.captures import Capture, RankTrace, find_captures
from pipelines.fleet.fits import empty_fits
from pipelines.fleet.roles import ROLES, read_roles
from pipelines.lake.store import Lake
from pipelines.sqltext import row

_STAGED = {
    "_staged_captures": "capture_id VARCHAR, job VARCHAR, n_ranks BIGINT, world_size BIGINT, started_at TIMESTAMP, "
    "first_ts_ns BIGINT, last_ts_ns BIGINT, n_traces BIGINT, content VARCHAR, is_gone BOOLEAN",
    "_staged_capture_ranks": "capture_id VARCHAR, rank BIGINT, trace_id VARCHAR, left_out VARCHAR, batch_id VARCHAR",
    "_staged_capture_roles": "capture_id VARCHAR, rank BIGINT, role VARCHAR, group_name VARCHAR",
    "_staged_capture_quality": 'capture_id VARCHAR, "check" VARCHAR, severity VARCHAR, n BIGINT, detail VARCHAR',
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = 500
_TRACE = "trace_id, batch_id, path, group_id, job, rank, world_size, first_ts_ns, last_ts_ns, n_events"


def lake_captures(lake: Lake, with_roles: bool = True) -> dict[str, Capture]:
    """The captures that a lake's traces make, by capture_id. Raises RolesError for a roles.csv that cannot be read.

    `with_roles`: False if nothing that is asked for tells what the user tells of ranks.
    """
    roles = read_roles(lake.root / ROLES) if with_roles else ()
    return {capture.capture_id: capture for capture in find_captures(read_traces(lake), roles)}


def read_traces(lake: Lake) -> list[RankTrace]:
    """The committed traces of a lake."""
    con = lake.connect(["traces"])
    try:
        if not lake.batches():
            return []
        return [RankTrace(*values) for values in con.execute(f"SELECT {_TRACE} FROM traces").fetchall()]
    finally:
        con.close()


def empty_stage(con: duckdb.DuckDBPyConnection) -> None:
    """The given tables without rows."""
    for table, columns in _STAGED.items():
        con.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    empty_fits(con)


def stage_captures(con: duckdb.DuckDBPyConnection, captures: Iterable[Capture], gone: Iterable[str] = ()) -> None:
    """Create the given tables about captures; `gone`: ids of captures that are no more."""
    for table, columns in _STAGED.items():
        con.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    found = list(captures)
    _insert(con, "_staged_captures", [*map(_capture, found), *(_gone(capture_id) for capture_id in gone)])
    ranks = [(c.capture_id, m.rank, m.trace.trace_id, m.left_out, m.trace.batch_id) for c in found for m in c.members]
    _insert(con, "_staged_capture_ranks", [row(values) for values in ranks])
    roles = [(c.capture_id, r.rank, r.role, r.group) for c in found for r in c.roles]
    _insert(con, "_staged_capture_roles", [row(values) for values in roles])
    findings = [(c.capture_id, f.check, f.severity, f.n, f.detail) for c in found for f in c.findings]
    _insert(con, "_staged_capture_quality", [row(values) for values in findings])


def _capture(capture: Capture) -> str:
    traces = [member.trace for member in capture.ranks]
    first = min((t.first_ts_ns for t in traces if t.first_ts_ns is not None), default=None)
    last = max((t.last_ts_ns for t in traces if t.last_ts_ns is not None), default=None)
    values = [capture.capture_id, capture.job, len(traces), capture.world_size, _time(first), first, last]
    return row([*values, len(capture.members), capture.content, False])


def _gone(capture_id: str) -> str:
    return row([capture_id, *[None] * 6, 0, "", True])


def _time(ns: int | None) -> datetime | None:
    try:
        return None if ns is None else _EPOCH + timedelta(microseconds=ns // 1000)
    except OverflowError:  # no time of a calendar
        return None


def _insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[str]) -> None:
    for first in range(0, len(rows), _ROWS):
        con.execute(f"INSERT INTO {table} VALUES {', '.join(rows[first : first + _ROWS])}")
