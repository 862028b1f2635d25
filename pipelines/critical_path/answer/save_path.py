"""The writer of a critical path with its graph into one file. `saved_path.py` documents the format and reads it."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base import database
from pipelines.base.database import rows_of
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.answer.saved_path import (
    BLANK,
    DIGEST,
    MARK,
    META,
    PARTS,
    VERSION,
    SavedPath,
    digest,
    is_saved,
    place_of_digest,
)
from pipelines.critical_path.graph.bounds import EVENTS, RULES
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import duckdb

SOURCES = (
    "critical_path_windows",
    "critical_path_nodes",
    "critical_path_edges",
    "critical_path",
    "critical_path_summary",
    "critical_path_events",
    "_refused_windows",
    "_path_rules",
    "edge_types",
    "switches",
)
"""The tables that `save_path` reads, in addition to `events` and `traces`."""


_QUERIES = {
    "nodes": """
        SELECT t.node_id, t.event_id, t.is_start, t.at_ns, e.name, e.cat
        FROM critical_path_nodes AS t LEFT JOIN events AS e ON e.trace_id = t.trace_id AND e.event_id = t.event_id
        WHERE {of}
    """,
    "edges": """
        SELECT t.* EXCLUDE (trace_id, window_id), p.seq
        FROM critical_path_edges AS t
        LEFT JOIN critical_path AS p ON p.trace_id = t.trace_id AND p.window_id = t.window_id AND p.edge_id = t.edge_id
        WHERE {of}
    """,
    "path": "SELECT t.* EXCLUDE (trace_id, window_id) FROM critical_path AS t WHERE {of}",
    "events": EVENTS,
}


def save_path(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    answer: PathAnswer,
    target: Path,
    *,
    window_id: str,
    overrides: dict[tuple[str, str], str] | None,
) -> None:
    """Write the path of a window into the file `target`, completely or not at all.

    `con` contains the tables of SOURCES. `answer` is the window's answer, and `overrides` are the switches of its
    computation. An existing saved path is replaced. Raises FileExistsError for any other existing file, OSError if the
    file cannot be written, and ValueError for an unknown window.
    """
    check_target(target)
    condition = f"t.trace_id = {quoted(trace_id)} AND t.window_id = {quoted(window_id)}"
    meta = _meta(con, condition, answer, overrides or {})
    _write(con, target, meta, {part: _QUERIES[part].format(of=condition) for part in PARTS})


def write_saved(saved: SavedPath, target: Path) -> None:
    """Write a path from memory into the file `target`, completely or not at all. Raises OSError like `check_target`."""
    check_target(target)
    with database.connect() as con:
        for part in PARTS:
            con.register(part, getattr(saved, part))
        _write(con, target, saved.meta, {part: f"FROM {part}" for part in PARTS})


def _write(con: duckdb.DuckDBPyConnection, target: Path, meta: dict[str, Any], queries: Mapping[str, str]) -> None:
    """Write the file: the rows of each query as a struct column, the metadata, and the digest in the metadata."""
    rows = " UNION ALL BY NAME ".join(f"SELECT one AS {part} FROM ({query}) AS one" for part, query in queries.items())
    order = ", ".join(f"{part}.{key}" for part, key in PARTS.items())  # the same path yields the same bytes
    entries = {META: json.dumps(meta), DIGEST: (MARK + BLANK).decode()}
    kv_metadata = ", ".join(f"{key}: {quoted(value)}" for key, value in entries.items())
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        temporary = Path(folder, "saved.parquet")
        con.execute(
            f"COPY (FROM ({rows}) ORDER BY {order}) TO {quoted(temporary)} "
            f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{kv_metadata}}})"
        )
        with temporary.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            begin, end = place_of_digest(content)
            content[begin:end] = digest(content)
        os.replace(temporary, target)


def check_target(target: Path) -> None:
    """Raise OSError if the folder does not exist, or if the file exists and is not a saved path.

    A file that is not a saved path may be the trace, which must not be overwritten.
    """
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist, so {target.name} cannot be written there")
    if target.exists() and not is_saved(target):
        raise FileExistsError(f"{target} exists and is not a saved path: give another name")


def _meta(
    con: duckdb.DuckDBPyConnection, condition: str, answer: PathAnswer, overrides: dict[tuple[str, str], str]
) -> dict[str, Any]:
    windows = rows_of(
        con, f"SELECT * EXCLUDE (window_no, trace_profile_id) FROM critical_path_windows AS t WHERE {condition}"
    )
    if not windows:
        raise ValueError(f"there is no window with {condition}")
    window = windows[0]
    trace_id, profile = window.pop("trace_id"), window.pop("profile")
    of_trace = f"WHERE trace_id = {quoted(trace_id)}"
    size = f"(SELECT max(event_id) + 1 FROM events {of_trace}) AS n_events"
    [trace] = rows_of(con, f"SELECT trace_id, path AS file, rank, {size} FROM traces {of_trace}")
    trace["findings"] = rows_of(con, f"SELECT check_name, severity, detail FROM findings {of_trace} ORDER BY ALL")
    trace["file"] = trace["file"] and Path(trace["file"]).name  # the folders are meaningless on another machine
    switches = {row["switch"]: row["value"] for row in rows_of(con, f"FROM switches WHERE profile = {quoted(profile)}")}
    refused = rows_of(
        con, f"SELECT reason FROM _refused_windows JOIN critical_path_windows AS t USING (window_no) WHERE {condition}"
    )
    saved_answer = {
        name: value for name, value in answer.as_json().items() if name not in ("path", "inferred")
    }  # table `path` contains them
    return {
        "version": VERSION,
        "trace": trace,
        "window": window,
        "profile": profile,
        "switches": switches | {name: value for (view, name), value in overrides.items() if view == profile},
        "answer": saved_answer,
        "refused": refused[0]["reason"] if refused else None,
        "rules": rows_of(con, RULES.format(of=condition)),
        "summary": rows_of(
            con,
            "SELECT * EXCLUDE (trace_id, window_id, profile) FROM critical_path_summary AS t "
            f"WHERE {condition} ORDER BY duration_ns DESC, bound_by",
        ),
    }
