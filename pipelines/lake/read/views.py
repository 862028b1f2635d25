"""The SELECT of a table's valid rows in the lake's files: committed, of the newest state and not superseded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pipelines.lake.names import CAPTURE_MARK, CAPTURE_RANKS, GROWING, KEYS, MARK, REJECTS, mark_of
from pipelines.models.sqltext import file_list, parquet_rows, quoted


def committed_rows(table: str, files: Iterable[Path], mark_rows: str | None = None) -> str:
    """Return the SELECT of a table's committed rows. It reads the marker table, such as `traces`, which must exist.

    `mark_rows`: a SELECT to read instead of the marker table. For `traces`, the result is the raw rows (see
    trace_rows).
    """
    return valid_rows(table, file_rows(files), mark_rows)


def file_rows(files: Iterable[Path]) -> str:
    """Return the SELECT of all rows in files of a table.

    If the model gained a column after the file was written, the column is NULL until the file is recomputed.
    """
    return files_rows(file_list(files))


def files_rows(files: str) -> str:
    """Return `file_rows` for a list of files in the form of an SQL expression."""
    return f"SELECT * FROM {parquet_rows(files, 'union_by_name = true')}"


def valid_rows(table: str, rows: str, mark_rows: str | None = None) -> str:
    """Return the SELECT of the committed rows of the newest state among `rows`."""
    mark = mark_of(table)
    if table == CAPTURE_MARK:  # a recomputed capture has several rows, and the newest batch's rows count
        newest = "QUALIFY row_number() OVER (PARTITION BY capture_id ORDER BY batch_id DESC) = 1"
        return f"SELECT * FROM ({rows} {newest}) WHERE NOT is_gone"
    if table in GROWING:  # a source that was still growing may have been ingested several times
        return f"{rows} QUALIFY row_number() OVER (PARTITION BY {KEYS[table]} ORDER BY batch_id DESC) = 1"
    if table in (*KEYS, REJECTS):
        return rows
    return f"{rows} SEMI JOIN {mark_rows or mark} AS mark USING ({KEYS[mark]}, batch_id)"


MEMBERSHIP_TABLES = (CAPTURE_MARK, CAPTURE_RANKS)  # the tables that determine the capture of a trace
_NO_ROWS = "SELECT NULL::VARCHAR AS capture_id, NULL::VARCHAR AS trace_id, NULL::VARCHAR AS batch_id WHERE false"
FOLDER = "regexp_extract(path, '^(.*)/', 1)"  # the folder of a trace's file


def trace_rows(files: Mapping[str, list[Path]]) -> str:
    """Return the SELECT of the committed traces with their captures, without superseded traces.

    `files`: the files of `traces` and MEMBERSHIP_TABLES. The capture is known after the tables of captures were
    computed with the trace. Before that, capture_id is the group's id, because the group's first capture will have this
    id. If a capture already has this id, capture_id is NULL.
    """
    captures, members = (files[table] for table in MEMBERSHIP_TABLES)
    named = committed_rows(CAPTURE_MARK, captures) if captures else _NO_ROWS
    ranks = committed_rows(CAPTURE_RANKS, members, f"({named})") if captures and members else _NO_ROWS
    return placed_rows(file_rows(files[MARK]), named, ranks)


def placed_rows(rows: str, named: str, ranks: str) -> str:
    """Return the SELECT of `trace_rows` over raw rows of traces, valid rows of captures, and valid rows of ranks."""
    # If a trace moved to another capture, the old capture has it until it is recomputed, so the newest batch counts.
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
"""Part of the reason in `rejects` for a trace that a better trace superseded. Such a row is not a problem."""


PARTED = "csv/rocprofv3"
"""The format of traces that consist of several files, which may arrive one after another."""
PART_NAMES = r"(kernel|memory_copy|(hip|marker|hsa|rccl)(_api)?)_trace\.csv$"
"""A regular expression for these files' name suffixes. Without the suffix, files of one process have equal paths."""


def superseded(rows: str) -> str:
    """Return the SELECT of the traces that a better trace supersedes: trace_id, superseded_by.

    `rows`: a SELECT of traces. A truncated trace is superseded by a better trace, which has at least as many events and
    is either complete or longer. The better trace is from the same file and not of another rank, or has the same rank
    and group and a time span that contains the truncated trace's span.

    A trace of several files (PARTED) may have been read before all its files existed. Then the later trace of these
    files that contains it supersedes it. The two paths differ if the file that names the trace arrived late. A run
    reads all processes of these files, so only a later run's trace supersedes, never another process of the same run.
    `ingest_batch_id` names the run even after a merge.
    """
    columns = (
        "trace_id, coalesce(ingest_batch_id, batch_id) AS batch_id, path, job, rank, status, n_events, "
        "trace_start_ns, trace_end_ns, group_id, format"
    )
    better = (
        "w.trace_id <> p.trace_id AND p.status = 'partial' AND w.n_events >= p.n_events "
        "AND (w.status <> 'partial' OR (w.n_events, w.trace_id) > (p.n_events, p.trace_id))"
    )
    inside = "w.trace_start_ns <= p.trace_start_ns AND w.trace_end_ns >= p.trace_end_ns"
    same_name = (
        "coalesce(p.job, w.job, '') = coalesce(w.job, '') AND coalesce(p.rank, w.rank, -1) = coalesce(w.rank, -1)"
    )
    same_file = f"p JOIN m AS w ON w.path = p.path AND {same_name}"
    process_w, process_p = (f"regexp_replace({side}.path, {quoted(PART_NAMES)}, '')" for side in "wp")
    same_process = f"p JOIN m AS w ON {process_w} = {process_p} AND {same_name}"
    same_rank = f"p JOIN m AS w ON w.group_id = p.group_id AND w.rank = p.rank AND {inside}"
    later = f"p.format = '{PARTED}' AND w.format = '{PARTED}' AND w.batch_id > p.batch_id AND w.n_events >= p.n_events AND {inside}"
    pairs = " UNION ALL ".join(
        f"SELECT p.trace_id, w.trace_id AS superseded_by, w.n_events FROM m AS {both} WHERE {condition}"
        for both, condition in ((same_file, better), (same_rank, better), (same_process, later))
    )
    return (
        f"WITH m AS (SELECT {columns} FROM ({rows}) AS t) "
        f"SELECT trace_id, max_by(superseded_by, n_events) AS superseded_by FROM ({pairs}) GROUP BY trace_id"
    )
