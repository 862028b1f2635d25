"""The SELECT of a table's valid rows over the files of the lake: committed, the newest state, not superseded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pipelines.lake.names import CAPTURE_MARK, CAPTURE_RANKS, GROWING, KEYS, MARK, REJECTS, mark_of
from pipelines.models.sqltext import file_list


def committed_rows(table: str, files: Iterable[Path], mark_rows: str | None = None) -> str:
    """Returns the SELECT of a table's committed rows; it reads the table's mark (`traces`), which must already exist.

    `mark_rows`: what to read instead of the mark's table. For `traces` these are the raw rows: see trace_rows.
    """
    return valid_rows(table, file_rows(files), mark_rows)


def file_rows(files: Iterable[Path]) -> str:
    """Returns the SELECT of all rows in files of a table.

    A column that the table's model has since the file was written reads as NULL until it is recomputed.
    """
    return files_rows(file_list(files))


def files_rows(files: str) -> str:
    """`file_rows` of a list of files that is given as SQL."""
    return f"SELECT * FROM read_parquet({files}, hive_partitioning = false, union_by_name = true)"


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


TOLD_BY = (CAPTURE_MARK, CAPTURE_RANKS)  # the tables that determine which capture a trace is in
_NO_ROWS = "SELECT NULL::VARCHAR AS capture_id, NULL::VARCHAR AS trace_id, NULL::VARCHAR AS batch_id WHERE false"
FOLDER = "regexp_extract(path, '^(.*)/', 1)"  # that a trace was found in


def trace_rows(files: Mapping[str, list[Path]]) -> str:
    """Returns the SELECT of the committed traces, each with the capture that it is in; `files` of `traces` and TOLD_BY.

    The capture is known once tables of captures were computed with the trace. Before that it is the group's id,
    provided that no capture has that id yet (the group's first capture will get it); else NULL. Superseded traces are
    left out.
    """
    captures, members = (files[table] for table in TOLD_BY)
    named = committed_rows(CAPTURE_MARK, captures) if captures else _NO_ROWS
    ranks = committed_rows(CAPTURE_RANKS, members, f"({named})") if captures and members else _NO_ROWS
    return placed_rows(file_rows(files[MARK]), named, ranks)


def placed_rows(rows: str, named: str, ranks: str) -> str:
    """Returns the SELECT of `trace_rows` over raw rows of traces, the valid rows of captures and those of their ranks."""
    # A trace that changed its capture is also in the old one until that is recomputed: the newest batch counts.
    newest = f"SELECT trace_id, max_by(capture_id, batch_id) AS capture_id FROM ({ranks}) GROUP BY trace_id"
    captured = "coalesce(m.capture_id, CASE WHEN c.capture_id IS NULL THEN t.group_id END)"
    return (
        f"SELECT t.* REPLACE ({captured} AS capture_id) "
        f"FROM ({rows}) AS t "
        f"ANTI JOIN ({superseded(rows)}) AS s ON s.trace_id = t.trace_id "
        f"LEFT JOIN ({newest}) AS m ON m.trace_id = t.trace_id "
        f"LEFT JOIN ({named}) AS c ON c.capture_id = t.group_id"
    )


SUPERSEDED = "superseded by trace"
"""Reason, in `rejects`, of a trace that was superseded by a better one: nothing is wrong there."""


def superseded(rows: str) -> str:
    """Returns the SELECT of truncated traces for which there is a better one: trace_id, superseded_by.

    `rows`: a SELECT of traces. Better means at least as many events and either whole or longer: of the same file, or of
    the same rank, job and folder if the truncated one's time lies within the other's.
    """
    columns = "trace_id, path, job, rank, status, n_events, trace_start_ns, trace_end_ns, group_id"
    better = (
        "w.trace_id <> p.trace_id AND p.status = 'partial' AND w.n_events >= p.n_events "
        "AND (w.status <> 'partial' OR (w.n_events, w.trace_id) > (p.n_events, p.trace_id))"
    )
    inside = "w.trace_start_ns <= p.trace_start_ns AND w.trace_end_ns >= p.trace_end_ns"
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
