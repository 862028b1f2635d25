"""Traces that a better trace replaces in every table, and the corresponding reasons for `rejects`."""

from __future__ import annotations

import duckdb

from pipelines.lake.lake import Lake
from pipelines.lake.names import MARK
from pipelines.lake.read.trace_marks import recent_marks
from pipelines.lake.read.views import FOLDER, SUPERSEDED, file_rows, superseded
from pipelines.models.sqltext import quoted

_COLUMNS = (
    "trace_id, batch_id, ingest_batch_id, path, capture_id, group_id, job, rank, status, n_events, trace_start_ns, "
    "trace_end_ns, format"
)


def superseded_by_batch(con: duckdb.DuckDBPyConnection, lake: Lake, own: str, batch_id: str) -> list[tuple[str, str]]:
    """Return `superseded_reasons` for a batch to be committed to a lake. `own`: a SELECT of its traces."""
    try:
        with recent_marks(con, lake) as marks:
            files = [] if marks else lake.intact_files(MARK)
            stored = marks.traces() if marks else file_rows(files) if files else ""
            return superseded_reasons(con, own, stored, batch_id)
    except duckdb.Error:
        # These rows only report what the views do, so an unreadable commit marker must not stop ingestion.
        return []


def superseded_reasons(con: duckdb.DuckDBPyConnection, own: str, stored: str, batch_id: str) -> list[tuple[str, str]]:
    """Return path and reason for each incomplete trace that a better trace now supersedes.

    At least one of the two traces is in the batch. `own`: a SELECT of the batch's traces. `stored`: a SELECT of the
    stored traces, or "".
    """
    # Only traces of the same folder supersede each other.
    same_folder = f"WHERE {FOLDER} IN (SELECT DISTINCT {FOLDER} FROM ({own}))"
    marks = f"{own} UNION ALL BY NAME SELECT * FROM ({stored}) {same_folder}" if stored else own
    query = (
        f"WITH _marks AS MATERIALIZED (SELECT {_COLUMNS} FROM ({marks})) "
        f"SELECT DISTINCT p.path, p.trace_id, p.status = 'partial', p.n_events, w.trace_id, w.path, w.n_events, w.status "
        f"FROM ({superseded('SELECT * FROM _marks')}) AS s "
        f"JOIN _marks AS p ON p.trace_id = s.trace_id JOIN _marks AS w ON w.trace_id = s.superseded_by "
        f"WHERE {quoted(batch_id)} IN (p.batch_id, w.batch_id) ORDER BY ALL"
    )
    return [
        (
            path,
            f"trace {trace_id} was {'truncated' if is_truncated else 'read without some of its files'} "
            f"({n_events:,} events) and is excluded from all tables: {SUPERSEDED} "
            f"{by} ({by_path}, {by_events:,} events, {status})",
        )
        for path, trace_id, is_truncated, n_events, by, by_path, by_events, status in con.execute(query).fetchall()
    ]
