"""The SELECT of a table's valid rows over the files of the lake: committed, the newest state, not superseded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pipelines.lake.layout import CAPTURE_MARK, CAPTURE_RANKS, GROWING, KEYS, MARK, REJECTS, mark_of
from pipelines.models.sqltext import file_list
from pipelines.renamed import old_columns, table_now


def committed_rows(table: str, files: Iterable[Path], mark_rows: str | None = None) -> str:
    """Returns the SELECT of a table's committed rows; it reads the table's mark (`traces`), which must already exist.

    `mark_rows`: what to read instead of the mark's table. For `traces` these are the raw rows: see trace_rows.
    """
    return valid_rows(table, file_rows(table, files), mark_rows)


def file_rows(table: str, files: Iterable[Path]) -> str:
    """Returns the SELECT of all rows in files of a table.

    Files of an older version of a model may lack columns: they read as NULL until they are recomputed.
    """
    return files_rows(table, file_list(files))


def files_rows(table: str, files: str) -> str:
    """`file_rows` of a list of files that is given as SQL."""
    rows = f"SELECT * FROM read_parquet({files}, hive_partitioning = false, union_by_name = true)"
    return _with_new_columns(table, rows)


def valid_rows(table: str, rows: str, mark_rows: str | None = None) -> str:
    """Returns the SELECT of those of the given rows that are committed, and of the newest state."""
    mark = mark_of(table)
    if table == CAPTURE_MARK:  # a recomputed capture has several rows: the newest batch's count
        newest = "QUALIFY row_number() OVER (PARTITION BY capture_id ORDER BY batch_id DESC) = 1"
        return f"SELECT * FROM ({rows} {newest}) WHERE NOT is_gone"
    if table in GROWING:  # what was still running when ingested may have been ingested again
        return f"{rows} QUALIFY row_number() OVER (PARTITION BY {KEYS[table]} ORDER BY batch_id DESC) = 1"
    if table in (*KEYS, REJECTS):
        return rows
    return f"{rows} SEMI JOIN {mark_rows or mark} AS mark USING ({KEYS[mark]}, batch_id)"


def _with_new_columns(table: str, rows: str) -> str:
    """Returns rows whose columns have their current names, also where files have the old ones."""
    if not (columns := old_columns(table)):
        return rows
    both = ", ".join(f"NULL AS {name}" for pair in columns.items() for name in pair)
    either = ", ".join(f"coalesce({new}, {old}) AS {new}" for old, new in columns.items())
    shown = f"* EXCLUDE ({', '.join(columns)}) REPLACE ({either})"
    return f"SELECT {shown} FROM ({rows} UNION ALL BY NAME SELECT {both} WHERE false)"


def under_old_name(old: str) -> str:
    """Returns the SELECT of a view under a table's old name, over the table under its current name, including old
    columns.
    """
    table = table_now(old)
    columns = (f", {new} AS {column}" for column, new in old_columns(table).items())
    return f"SELECT *{''.join(columns)} FROM {table}"


TOLD_BY = (CAPTURE_MARK, CAPTURE_RANKS)  # the tables that determine which capture a trace is in
_NO_ROWS = (
    "SELECT NULL::VARCHAR AS capture_id, NULL::VARCHAR AS group_id, NULL::VARCHAR AS trace_id, "
    "NULL::VARCHAR AS batch_id, NULL::VARCHAR AS ingest_batch_id, NULL::VARCHAR AS file, "
    "NULL::TIMESTAMP AS started_at WHERE false"
)
# What files of an older version lack, from what they have; as in sql/ingest/traces.sql.
_DERIVED = (
    r"coalesce(file, regexp_extract(path, '[^/\\]*$')) AS file, coalesce(started_at, "
    "CASE WHEN first_ts_ns > 1000000000000000000 THEN make_timestamp(first_ts_ns // 1000) END) AS started_at"
)
FOLDER = "regexp_extract(path, '^(.*)/', 1)"  # that a trace was found in
GROUP = "coalesce(t.group_id, t.capture_id)"  # files of an older version call the group capture_id


def trace_rows(files: Mapping[str, list[Path]]) -> str:
    """Returns the SELECT of the committed traces, each with the capture that it is in; `files` of `traces` and TOLD_BY.

    The capture is known once tables of captures were computed with the trace. Before that it is the group's id,
    provided that no capture has that id yet (the group's first capture will get it); else NULL. Superseded traces are
    left out.
    """
    captures, members = (files[table] for table in TOLD_BY)
    named = committed_rows(CAPTURE_MARK, captures) if captures else _NO_ROWS
    ranks = committed_rows(CAPTURE_RANKS, members, f"({named})") if captures and members else _NO_ROWS
    return placed_rows(raw_traces(files[MARK]), named, ranks)


def raw_traces(files: Iterable[Path]) -> str:
    """Returns the SELECT of the rows in files of `traces`."""
    return with_derived(f"{committed_rows(MARK, files)} UNION ALL BY NAME {_NO_ROWS}")


def with_derived(rows: str) -> str:
    """Returns the rows of traces with the columns that follow from others, also where an older version wrote them."""
    return f"SELECT * REPLACE ({_DERIVED}) FROM ({rows})"


def placed_rows(rows: str, named: str, ranks: str) -> str:
    """Returns the SELECT of `trace_rows` over raw rows of traces, the valid rows of captures and those of their ranks."""
    # A trace that changed its capture is also in the old one until that is recomputed: the newest batch counts.
    newest = f"SELECT trace_id, max_by(capture_id, batch_id) AS capture_id FROM ({ranks}) GROUP BY trace_id"
    captured = f"coalesce(m.capture_id, CASE WHEN c.capture_id IS NULL THEN {GROUP} END)"
    return (
        f"SELECT t.* REPLACE ({captured} AS capture_id, {GROUP} AS group_id) "
        f"FROM ({rows}) AS t "
        f"ANTI JOIN ({superseded(rows)}) AS s ON s.trace_id = t.trace_id "
        f"LEFT JOIN ({newest}) AS m ON m.trace_id = t.trace_id "
        f"LEFT JOIN ({named}) AS c ON c.capture_id = {GROUP}"
    )


SUPERSEDED = "superseded by trace"
"""Reason, in `rejects`, of a trace that was superseded by a better one: nothing is wrong there."""


def superseded(rows: str) -> str:
    """Returns the SELECT of truncated traces for which there is a better one: trace_id, superseded_by.

    `rows`: a SELECT of traces. Better means at least as many events and either whole or longer: of the same file, or of
    the same rank, job and folder if the truncated one's time lies within the other's.
    """
    columns = f"trace_id, path, job, rank, status, n_events, first_ts_ns, last_ts_ns, {GROUP} AS group_id"
    better = (
        "w.trace_id <> p.trace_id AND p.status = 'partial' AND w.n_events >= p.n_events "
        "AND (w.status <> 'partial' OR (w.n_events, w.trace_id) > (p.n_events, p.trace_id))"
    )
    inside = "w.first_ts_ns <= p.first_ts_ns AND w.last_ts_ns >= p.last_ts_ns"
    same_file = "p JOIN m AS w ON w.path = p.path AND coalesce(p.job, w.job, '') = coalesce(w.job, '')"
    same_rank = f"p JOIN m AS w ON w.group_id = p.group_id AND w.rank = p.rank AND {inside}"
    pairs = " UNION ALL ".join(
        f"SELECT p.trace_id, w.trace_id AS superseded_by, w.n_events FROM m AS {both} WHERE {better}"
        for both in (same_file, same_rank)
    )
    return (
        f"WITH m AS (SELECT {columns} FROM ({rows}) AS t) "
        f"SELECT trace_id, max_by(superseded_by, n_events) AS superseded_by FROM ({pairs}) GROUP BY trace_id"
    )
