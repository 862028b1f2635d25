"""A critical path with its graph as one file: Parquet and JSON in a zip, which any process reads without the lake.

Nothing in the file is code (HTA's files are Python pickles, which run what they hold when they are read).

    meta.json       version, trace, window, profile, switches, length and summary, and the digest of every other part
    nodes.parquet   node_id, event_id, is_start, ts_ns, and name and category of the event
    edges.parquet   both ends, type, weights, attributed event, and `seq`: the place on the path (NULL: not on it)
    path.parquet    the rows of `critical_path`
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.critical_path.answer import PathAnswer
from pipelines.sqltext import quoted

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from pipelines.critical_path.graph import ArrayGraph

FORMAT, VERSION = "tracelake critical path", 1
SOURCES = (
    "critical_path_windows",
    "critical_path_nodes",
    "critical_path_edges",
    "critical_path",
    "critical_path_summary",
)
"""The tables that `save_path` reads, beside `events`, `traces` and `switches`."""

_PARTS = {
    "nodes": """
        SELECT t.node_id, t.event_id, t.is_start, t.ts_ns, e.name, e.cat
        FROM critical_path_nodes AS t LEFT JOIN events AS e ON e.trace_id = t.trace_id AND e.event_id = t.event_id
        WHERE {of} ORDER BY t.node_id
    """,
    "edges": """
        SELECT t.* EXCLUDE (trace_id, window_id), p.seq
        FROM critical_path_edges AS t LEFT JOIN critical_path AS p USING (trace_id, window_id, edge_id)
        WHERE {of} ORDER BY t.edge_id
    """,
    "path": "SELECT t.* EXCLUDE (trace_id, window_id) FROM critical_path AS t WHERE {of} ORDER BY t.seq",
}
_AGAIN = "Save the path again from its trace: tracelake critical-path TRACE --save FILE"


class NotASavedPath(ValueError):
    """The file is none, is damaged, or is of an unknown version; the message names it and says what to do."""


@dataclass(frozen=True, eq=False)
class SavedPath:
    """A restored path. `nodes`, `edges` and `path` have the columns above, in order; `meta` is meta.json."""

    meta: dict[str, Any]
    nodes: pa.Table
    edges: pa.Table
    path: pa.Table

    @property
    def title(self) -> str:
        """What the path is of, for a heading."""
        trace, window = self.meta["trace"], self.meta["window"]
        annotation = f", {window['annotation']} {window['first_instance']}:{window['last_instance']}"
        return f"{trace['file'] or trace['trace_id']}{annotation if window['annotation'] else ''}, profile {self.meta['profile']}"

    @property
    def answer(self) -> PathAnswer:
        """The answer that was saved, with its path."""
        columns = (self.path[name].to_pylist() for name in ("event_id", "name", "edge_type", "duration_ns", "bound_by"))
        path = [
            {"event_id": event, "name": name, "edge_type": kind, "duration_us": ns / 1000, "bound_by": bound_by}
            for event, name, kind, ns, bound_by in zip(*columns, strict=True)
        ]
        known = {field.name for field in fields(PathAnswer)}  # a newer tracelake may say more
        return PathAnswer(**{name: value for name, value in self.meta["answer"].items() if name in known}, path=path)

    def graph(self) -> ArrayGraph:
        """The graph over node ids, weights in ns as used on the path: `networkx.dag_longest_path` gives the path."""
        from pipelines.critical_path.graph import ArrayGraph

        return ArrayGraph.from_edges(
            *(self.edges[name].to_numpy() for name in ("src_node_id", "dst_node_id", "path_weight_ns"))
        )


def save_path(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    answer: PathAnswer,
    target: Path,
    *,
    window_id: str = "full",
    overrides: dict[tuple[str, str], str] | None = None,
) -> None:
    """Write the path of a window into the file `target`, which is whole or not there.

    `con` holds the tables of SOURCES; `answer` and `overrides` are what the window's path gave and the switches it was
    computed with. A saved path of that name is replaced. Raises FileExistsError for any other file, OSError where it
    cannot be written, and ValueError for an unknown window.
    """
    check_target(target)
    of = f"t.trace_id = {quoted(trace_id)} AND t.window_id = {quoted(window_id)}"
    meta = _meta(con, of, answer, overrides or {})
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        whole = Path(folder, "saved.zip")
        # The parts are packed already. Times of day stay out of the archive: they would be all that differs.
        with zipfile.ZipFile(whole, "w") as archive:
            for part, query in _PARTS.items():
                file = Path(folder, _file(part))
                con.execute(f"COPY ({query.format(of=of)}) TO {quoted(file)} (FORMAT parquet, COMPRESSION zstd)")
                content = file.read_bytes()
                meta["parts"][file.name] = sha256(content).hexdigest()
                archive.writestr(zipfile.ZipInfo(file.name), content)
            archive.writestr(zipfile.ZipInfo("meta.json"), json.dumps({**meta, "sha256": _digest(meta)}, indent=1))
        os.replace(whole, target)


def check_target(target: Path) -> None:
    """Raise OSError where a path cannot be saved: no such folder, or a file that is no saved path (it may be the trace)."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} into")
    if target.exists() and not looks_saved(target):
        raise FileExistsError(f"{target} exists and is no saved path: give another name")


def looks_saved(file: Path) -> bool:
    """The file begins as a saved path does; whether it is one, `restore_path` finds out."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(4) == b"PK\x03\x04"


def restore_path(file: Path) -> SavedPath:
    """Read what `save_path` wrote. Raises NotASavedPath, and OSError where the file cannot be opened."""
    with file.open("rb"):
        pass
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            content = {name: archive.read(name) for name in ("meta.json", *map(_file, _PARTS)) if name in names}
            pickles = [name for name in names if name.endswith((".pkl", ".pickle"))]
    except Exception as error:  # zipfile raises anything from KeyError to struct.error for a damaged archive
        raise _damaged(file, f"the archive cannot be read ({error})") from None
    if "meta.json" not in content:
        why = "it is HTA's, whose pickles tracelake does not run" if pickles else "there is no meta.json in it"
        raise NotASavedPath(
            f"{file} holds no critical path saved by tracelake: {why}. {_AGAIN}; a zip of traces has to be unpacked."
        )
    meta = _checked(file, content)
    from pyarrow import ArrowException, parquet

    try:
        tables = [parquet.read_table(BytesIO(content[_file(part)])) for part in _PARTS]
    except (ArrowException, OSError) as error:
        raise _damaged(file, f"a table in it cannot be read ({error})") from None
    return SavedPath(meta, *tables)


def _checked(file: Path, content: dict[str, bytes]) -> dict[str, Any]:
    """What meta.json says, after every part was found as it was written."""
    try:
        meta = json.loads(content["meta.json"])
        format_, version = meta["format"], meta["version"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(file, "its meta.json cannot be read") from None
    if format_ != FORMAT:
        raise NotASavedPath(f"{file} holds no critical path saved by tracelake, but {format_!r}. {_AGAIN}.")
    if version != VERSION:
        raise NotASavedPath(
            f"{file} has format version {version!r}; this tracelake reads version {VERSION}. Read it with the tracelake that wrote "
            f"it or a newer one. {_AGAIN}, with this tracelake."
        )
    if meta.pop("sha256", None) != _digest(meta):
        raise _damaged(file, "meta.json is not what was written")
    for name in map(_file, _PARTS):
        if name not in content or sha256(content[name]).hexdigest() != meta["parts"].get(name):
            raise _damaged(file, f"{name} is {'not what was written' if name in content else 'missing'}")
    return meta


def _file(part: str) -> str:
    return f"{part}.parquet"


def _damaged(file: Path, what: str) -> NotASavedPath:
    return NotASavedPath(f"{file} is damaged: {what}. Copy or download it once more. {_AGAIN}.")


def _digest(meta: dict[str, Any]) -> str:
    return sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _meta(
    con: duckdb.DuckDBPyConnection, of: str, answer: PathAnswer, overrides: dict[tuple[str, str], str]
) -> dict[str, Any]:
    windows = _rows(con, f"SELECT * EXCLUDE (window_no, view_no) FROM critical_path_windows AS t WHERE {of}")
    if not windows:
        raise ValueError(f"there is no window with {of}")
    window = windows[0]
    trace_id, profile = window.pop("trace_id"), window.pop("profile")
    [trace] = _rows(con, f"SELECT trace_id, path AS file, rank FROM traces WHERE trace_id = {quoted(trace_id)}")
    trace["file"] = trace["file"] and Path(trace["file"]).name  # its folders say nothing on another machine
    switches = {row["switch"]: row["value"] for row in _rows(con, f"FROM switches WHERE profile = {quoted(profile)}")}
    said = asdict(answer)
    del said["path"]  # it is in path.parquet
    return {
        "format": FORMAT,
        "version": VERSION,
        "trace": trace,
        "window": window,
        "profile": profile,
        "switches": switches | {name: value for (view, name), value in overrides.items() if view == profile},
        "answer": said,
        "summary": _rows(
            con,
            "SELECT * EXCLUDE (trace_id, window_id, profile) FROM critical_path_summary AS t "
            f"WHERE {of} ORDER BY duration_ns DESC, bound_by",
        ),
        "parts": {},
    }


def _rows(con: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    cursor = con.execute(query)
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
