"""Rejected files that the store already records, so that `rejects` has one row per broken file, not per attempt."""

from __future__ import annotations

import duckdb

from pipelines.lake.lake import Lake
from pipelines.lake.names import MARK, REJECTS
from pipelines.lake.read.trace_marks import recent_marks
from pipelines.lake.read.views import SUPERSEDED, file_rows
from pipelines.models.questions import still_rejected
from pipelines.models.sqltext import quoted


def known_rejects(own: str, rejects: str, traces: str) -> str:
    """Return the SELECT of path and reason of the new rejects that a store already records.

    `own`: the SELECT of path, reason and seen_at of the new rejects. `rejects`, `traces`: SELECTs of the store's rows,
    "" without rows. If the file was ingested between two failed attempts, the second failure is new, even if the reason
    is the same.
    """
    if not rejects:
        return f"SELECT path, reason FROM ({own}) WHERE false"
    later = f"r.seen_at >= CAST(o.seen_at AS TIMESTAMP) OR contains(r.reason, {quoted(SUPERSEDED)})"
    return (
        f"SELECT path, reason FROM ({own}) SEMI JOIN ("
        f"SELECT path, reason FROM ({still_rejected(rejects, traces)}) UNION ALL "
        f"SELECT path, reason FROM ({rejects}) AS r JOIN ({own}) AS o USING (path, reason) WHERE {later}"
        ") USING (path, reason)"
    )


def stage_known_rejects(con: duckdb.DuckDBPyConnection, lake: Lake, own: str) -> None:
    """Create the table `_known_rejects` with `known_rejects` of a lake."""
    with recent_marks(con, lake) as marks:
        rejects = marks.rejects() if marks else _rows(lake, REJECTS)
        traces = marks.traces() if marks else _rows(lake, MARK)
        create = "CREATE OR REPLACE TEMP TABLE _known_rejects AS"
        try:
            con.execute(f"{create} {known_rejects(own, rejects, traces)}")
        except duckdb.Error:  # an unreadable commit marker must not stop ingestion
            con.execute(f"{create} {known_rejects(own, rejects, '')}")


def _rows(lake: Lake, table: str) -> str:
    files = lake.intact_files(table)
    return file_rows(files) if files else ""
