"""Writes a critical path with its graph into one file (see `saved.py` for its format and for reading it)."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.database import rows_of
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.answer.saved_path import FORMAT, PARTS, VERSION, SavedPath, digest, file_of, looks_saved
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
    "_edges",
    "_clip",
    "_kernel_class",
    "_refused_windows",
    "_bound_by",
    "_gap_owners",
    "_left_out",
)
"""The tables that `save_path` reads, besides `events`, `traces` and `switches`."""


_QUERIES = {
    "nodes": """
        SELECT t.node_id, t.event_id, t.is_start, t.at_ns, e.name, e.cat
        FROM critical_path_nodes AS t LEFT JOIN events AS e ON e.trace_id = t.trace_id AND e.event_id = t.event_id
        WHERE {of} ORDER BY t.node_id
    """,
    "edges": """
        SELECT t.* EXCLUDE (trace_id, window_id), p.seq
        FROM critical_path_edges AS t LEFT JOIN critical_path AS p USING (trace_id, window_id, edge_id)
        WHERE {of} ORDER BY t.edge_id
    """,
    "path": "SELECT t.* EXCLUDE (trace_id, window_id) FROM critical_path AS t WHERE {of} ORDER BY t.seq",
    "events": EVENTS,
}


def save_path(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    answer: PathAnswer,
    target: Path,
    *,
    window_id: str = "full",
    overrides: dict[tuple[str, str], str] | None = None,
) -> None:
    """Write the path of a window into the file `target`, completely or not at all.

    `con` holds the tables of SOURCES; `answer` and `overrides` are the window's answer and the switches it was computed
    with. A saved path of that name is replaced. Raises FileExistsError for any other file, OSError if it cannot be
    written, and ValueError for an unknown window.
    """
    check_target(target)
    of = f"t.trace_id = {quoted(trace_id)} AND t.window_id = {quoted(window_id)}"
    meta = _meta(con, of, answer, overrides or {})

    def write(part: str, file: Path) -> None:
        query = _QUERIES[part].format(of=of)
        con.execute(f"COPY ({query}) TO {quoted(file)} (FORMAT parquet, COMPRESSION zstd)")

    _pack(target, meta, list(PARTS), write)


def write_saved(saved: SavedPath, target: Path) -> None:
    """Write a path that is held in memory, as `save_path` does. Raises OSError as `check_target` does."""
    from pyarrow import parquet

    check_target(target)
    tables = {part: getattr(saved, part) for part in PARTS}
    parts = [part for part, table in tables.items() if table is not None]
    _pack(target, saved.meta, parts, lambda part, file: parquet.write_table(tables[part], file, compression="zstd"))


def _pack(target: Path, meta: dict[str, Any], parts: list[str], write: Callable[[str, Path], None]) -> None:
    """Create the archive from meta.json and the parts, each of which `write` writes to a file."""
    digests = {}
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        whole = Path(folder, "saved.zip")
        # The parts are already compressed. Timestamps are left out of the archive, so that equal content gives equal
        # bytes.
        with zipfile.ZipFile(whole, "w") as archive:
            for part in parts:
                file = Path(folder, file_of(part))
                write(part, file)
                content = file.read_bytes()
                digests[file.name] = sha256(content).hexdigest()
                archive.writestr(zipfile.ZipInfo(file.name), content)
            told = {**meta, "parts": digests}
            archive.writestr(zipfile.ZipInfo("meta.json"), json.dumps({**told, "sha256": digest(told)}, indent=1))
        os.replace(whole, target)


def check_target(target: Path) -> None:
    """Raise OSError if a path cannot be saved: no such folder, or an existing file that is not a saved path (it may be
    the trace).
    """
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist, so {target.name} cannot be written there")
    if target.exists() and not looks_saved(target):
        raise FileExistsError(f"{target} exists and is not a saved path: give another name")


def _meta(
    con: duckdb.DuckDBPyConnection, of: str, answer: PathAnswer, overrides: dict[tuple[str, str], str]
) -> dict[str, Any]:
    windows = rows_of(con, f"SELECT * EXCLUDE (window_no, trace_profile_id) FROM critical_path_windows AS t WHERE {of}")
    if not windows:
        raise ValueError(f"there is no window with {of}")
    window = windows[0]
    trace_id, profile = window.pop("trace_id"), window.pop("profile")
    of_trace = f"WHERE trace_id = {quoted(trace_id)}"
    size = f"(SELECT max(event_id) + 1 FROM events {of_trace}) AS n_events"
    ended = (
        f"(SELECT max(detail) FROM findings {of_trace} AND check_name = 'truncated') AS truncated"  # NULL: it is whole
    )
    [trace] = rows_of(con, f"SELECT trace_id, path AS file, rank, {size}, {ended} FROM traces {of_trace}")
    trace["file"] = trace["file"] and Path(trace["file"]).name  # its folders mean nothing on another machine
    switches = {row["switch"]: row["value"] for row in rows_of(con, f"FROM switches WHERE profile = {quoted(profile)}")}
    refused = rows_of(
        con, f"SELECT reason FROM _refused_windows JOIN critical_path_windows AS t USING (window_no) WHERE {of}"
    )
    said = answer.as_json()
    del said["path"]  # it is in path.parquet
    return {
        "format": FORMAT,
        "version": VERSION,
        "trace": trace,
        "window": window,
        "profile": profile,
        "switches": switches | {name: value for (view, name), value in overrides.items() if view == profile},
        "answer": said,
        "refused": refused[0]["reason"] if refused else None,
        "rules": rows_of(con, RULES.format(of=of)),
        "summary": rows_of(
            con,
            "SELECT * EXCLUDE (trace_id, window_id, profile) FROM critical_path_summary AS t "
            f"WHERE {of} ORDER BY duration_ns DESC, bound_by",
        ),
        "parts": {},
    }
