"""The input tables about captures, which sql/fleet/ reads in addition to the tables about traces."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.fleet.captures.grouping import DATED_NS, Capture, Member, RankTrace, find_captures, folder_of, is_dated
from pipelines.fleet.captures.roles import ROLES, read_roles
from pipelines.lake.commit.model_failures import lacking
from pipelines.lake.commit.staged_rows import insert_values
from pipelines.lake.lake import Lake
from pipelines.lake.names import CAPTURE_MARK, CAPTURE_RANKS, MARK, Batch
from pipelines.lake.read.snapshot import look
from pipelines.lake.read.trace_marks import Marks, read_marks
from pipelines.lake.read.views import MEMBERSHIP_TABLES, superseded
from pipelines.lake.retain.retention import kept_ids, removed_firsts
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import create_staged
from pipelines.models.python_tables import input_table
from pipelines.models.sqltext import quoted, row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE = (
    "trace_id, batch_id, path, group_id, job, rank, world_size, trace_start_ns, trace_end_ns, n_events, ingest_batch_id"
)


def lake_captures(lake: Lake, with_roles: bool = True, folders: Collection[str] | None = None) -> dict[str, Capture]:
    """Return the captures that a lake's traces form, by capture_id.

    `with_roles`: False if no requested table depends on roles. `folders`: use only traces in these folders. Raise
    RolesError if roles.csv cannot be read.
    """
    roles, traces = read_roles(lake.root / ROLES) if with_roles else (), read_traces(lake, folders)
    digests = _digests(lake) if traces else {}
    kept = {trace_id for members in digests.values() for trace_id in members}
    # Without events, a trace whose capture no longer exists cannot form another capture.
    traces = [trace for trace in traces if trace.trace_id in kept or not lake.is_digest(Batch(trace.batch_id))]
    lacking_by_batch = lacking(look(lake.root).entries)
    tables = {t.trace_id: lacking_by_batch.get((t.trace_id, t.batch_id), ()) for t in traces if lacking_by_batch}
    captures = find_captures(traces, roles, digests, removed_firsts(lake), tables, kept_ids(lake))
    return {capture.capture_id: capture for capture in captures}


def _digests(lake: Lake) -> dict[str, list[str]]:
    """Return the trace ids of each capture that was reduced to a digest, unless one of its traces was forgotten.

    A trace that a better trace superseded still belongs to its capture. If a forgotten trace was ingested again, its
    batch is later than the digest. Raise BrokenFiles.
    """
    batches = [batch.batch_id for batch in lake.batches(CAPTURE_MARK) if lake.is_digest(batch)]
    if not batches:
        return {}
    with lake.connect([CAPTURE_MARK, CAPTURE_RANKS]) as con:
        rows = con.execute(
            f"SELECT capture_id, batch_id, list(trace_id) FROM {CAPTURE_RANKS} WHERE batch_id IN {row(batches)} GROUP BY ALL"
        ).fetchall()
    known = lake.known_traces()  # includes complete traces, whose batch will be reduced later
    return {
        capture_id: members
        for capture_id, batch_id, members in rows
        if all(trace_id in known and known[trace_id].batch_id < batch_id for trace_id in members)
    }


def read_traces(lake: Lake, folders: Collection[str] | None) -> list[RankTrace]:
    """Return the committed traces of a lake, or only those in `folders` unless it is None. Raise BrokenFiles."""
    traces = _read_traces(lake, folders)
    return traces if folders is None else [trace for trace in traces if folder_of(trace.path) in folders]


def _read_traces(lake: Lake, folders: Collection[str] | None) -> list[RankTrace]:
    if not lake.broken({MARK, *MEMBERSHIP_TABLES}):
        with database.connect() as con:
            rows = read_marks(con, lake, lambda marks: _not_superseded(marks, folders))
        if rows is not None:
            return [RankTrace(*values) for values in rows]
    con = lake.connect(["traces"])
    try:
        if not lake.batches():
            return []
        return [RankTrace(*values) for values in con.execute(f"SELECT {_TRACE} FROM traces").fetchall()]
    finally:
        con.close()


def _not_superseded(marks: Marks, folders: Collection[str] | None) -> str:
    traces_query = marks.traces()
    if folders is not None:  # includes traces in subfolders, which the caller excludes
        conditions = (f"starts_with(path, {quoted(folder.rstrip('/') + '/')})" for folder in folders)
        traces_query = f"SELECT * FROM ({traces_query}) WHERE {' OR '.join(conditions) or 'false'}"
    return f"SELECT {_TRACE} FROM ({traces_query}) AS t ANTI JOIN ({superseded(traces_query)}) AS s ON s.trace_id = t.trace_id"


@input_table("_staged_captures", layer="fleet", reads=("traces",))
@input_table("_staged_capture_ranks", layer="fleet", reads=("traces",))
@input_table("_staged_capture_roles", layer="fleet", reads=("traces",))
@input_table("_staged_capture_quality", layer="fleet", reads=("traces",))
def stage_captures(con: duckdb.DuckDBPyConnection, captures: Iterable[Capture], gone: Iterable[str] = ()) -> None:
    """Create the input tables about captures; `gone`: ids of captures that no longer exist."""
    all_captures = list(captures)
    _stage(con, "captures", [*map(_capture, all_captures), *(_gone(capture_id) for capture_id in gone)])
    _stage(con, "capture_ranks", [_rank(capture, member) for capture in all_captures for member in capture.members])
    roles = [
        {"rank": role.rank, "role": role.role, "group_name": role.group} | _of(capture)
        for capture in all_captures
        for role in capture.roles
    ]
    _stage(con, "capture_roles", roles)
    _stage(
        con,
        "capture_quality",
        [asdict(finding) | _of(capture) for capture in all_captures for finding in capture.findings],
    )


def stage_members(con: duckdb.DuckDBPyConnection, captures: Iterable[Capture]) -> None:
    """Create `_capture_members` (capture_id, trace_id, batch_id), which locates the captures' traces in the lake."""
    con.execute("CREATE OR REPLACE TABLE _capture_members (capture_id VARCHAR, trace_id VARCHAR, batch_id VARCHAR)")
    traces = [(capture, member.trace) for capture in captures for member in capture.members]
    insert_values(
        con,
        "_capture_members",
        [{"trace_id": trace.trace_id, "batch_id": trace.batch_id} | _of(capture) for capture, trace in traces],
    )


def _stage(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    insert_values(con, create_staged(con, load_catalog(), table), rows)


def _of(capture: Capture) -> dict[str, Any]:
    return {"capture_id": capture.capture_id}


def _rank(capture: Capture, member: Member) -> dict[str, Any]:
    return {"rank": member.rank, "trace_id": member.trace.trace_id, "left_out_reason": member.left_out_reason} | _of(
        capture
    )


def _capture(capture: Capture) -> dict[str, Any]:
    traces = [member.trace for member in capture.ranks]
    dated = [trace for trace in traces if is_dated(trace)] or traces
    first = min((trace.trace_start_ns for trace in dated if trace.trace_start_ns is not None), default=None)
    last = max((trace.trace_end_ns for trace in dated if trace.trace_end_ns is not None), default=None)
    return {
        "capture_id": capture.capture_id,
        "job": capture.job,
        "n_ranks": len(traces),
        "world_size": capture.world_size,
        "started_at": _time(first),
        "capture_start_ns": first,
        "capture_end_ns": last,
        "n_traces": len(capture.members),
        "content": capture.content,
        "is_gone": False,
    }


def _gone(capture_id: str) -> dict[str, Any]:
    empty_columns = dict.fromkeys(("job", "n_ranks", "world_size", "started_at", "capture_start_ns", "capture_end_ns"))
    return {"capture_id": capture_id, **empty_columns, "n_traces": 0, "content": "", "is_gone": True}


def _time(ns: int | None) -> datetime | None:
    """Return a timestamp as UTC datetime, or None if it carries no date (at most DATED_NS).

    sql/ingest/traces/traces.sql has the same rule.
    """
    try:
        return None if ns is None or ns <= DATED_NS else _EPOCH + timedelta(microseconds=ns // 1000)
    except OverflowError:  # not a valid calendar time
        return None
