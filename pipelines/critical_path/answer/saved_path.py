"""The reader of a critical path with its graph from one file, without the trace or a lake.

The file is Parquet, whatever its name. `save_path.py` writes it. Each row belongs to one table. The row is a struct in
the column with the table's name, and the other columns are NULL. The tables and their columns are:

    nodes   node_id, event_id, is_start, at_ns, and name and category of the event
    edges   both ends, type, weights, attributed event, bound, and `seq`, the position on the path or NULL
    path    the rows of `critical_path`
    events  the events of the graph with the columns that scenarios and edits need, such as class, thread and stream

The file's metadata contains a JSON object: version, trace (with its findings, such as a truncated file), window,
profile, switches, answer, rules, summary, and the reason if the profile refuses the window. The last entry of the
metadata is a digest of the whole file.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.bounds import flags
from pipelines.models.sqltext import parquet_rows, quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.critical_path.graph.dependency_graph import ArrayGraph

VERSION = 4
META, DIGEST = "tracelake_path", "tracelake_digest"
"""The keys of the file's metadata."""
MARK, BLANK = b"sha256 of this file with zeros here: ", b"0" * 64
PARTS = {"nodes": "node_id", "edges": "edge_id", "path": "seq", "events": "event_id"}
"""The tables, each with the column that orders its rows."""
_ALLOWED = "TRACELAKE_MAX_SAVED_MIB"


class NotASavedPath(TracelakeError, ValueError):
    """The error for a file that is not a saved path, is damaged, or has an unknown version.

    The message names the file.
    """

    hint = "Save the path again from its trace: tracelake critical-path TRACE --save FILE"


@dataclass(frozen=True)
class EditedAnswer(PathAnswer):
    """The answer about an edited graph. `edited` counts the added, removed and changed nodes and edges."""

    edited: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SavedPath:
    """A critical path with its graph in memory.

    `nodes`, `edges`, `path` and `events` are the tables of the file, with rows in order. `meta` is the metadata.
    """

    meta: dict[str, Any]
    nodes: pa.Table
    edges: pa.Table
    path: pa.Table
    events: pa.Table

    @property
    def title(self) -> str:
        """Return a heading with the path's trace, window, profile, and the number of edits if the graph was edited."""
        trace, window = self.meta["trace"], self.meta["window"]
        annotation = f", {window['annotation']} {window['first_instance']}:{window['last_instance']}"
        edited = ", ".join(f"{n:,} {change}" for change, n in self.meta.get("edited", {}).items() if n)
        return (
            f"{trace['file'] or trace['trace_id']}{annotation if window['annotation'] else ''}, "
            f"profile {self.meta['profile']}{f', edited: {edited}' if edited else ''}"
        )

    @property
    def answer(self) -> PathAnswer:
        """Return the saved answer, with its path."""
        names = ("event_id", "name", "edge_type", "duration_ns", "bound_by", "owner")
        columns = (self.path[name].to_pylist() for name in names)
        path = [
            {
                "event_id": event,
                "name": name,
                "edge_type": kind,
                "duration_us": ns / 1000,
                "bound_by": bound_by,
                "owner": owner,
            }
            for event, name, kind, ns, bound_by, owner in zip(*columns, strict=True)
        ]
        inferred = np.flatnonzero(flags(self.path, "is_inferred")).tolist()
        members = {**self.meta["answer"], "path": path, "inferred": inferred}
        edited = self.meta.get("edited", {})
        return EditedAnswer(**members, edited=edited) if any(edited.values()) else PathAnswer(**members)

    def graph(self) -> ArrayGraph:
        """Return the graph over node ids, with weights in ns as used on the path.

        `networkx.dag_longest_path` returns its path.
        """
        from pipelines.critical_path.graph.dependency_graph import ArrayGraph

        src, dst, weight = (self.edges[name].to_numpy() for name in ("src_node_id", "dst_node_id", "path_weight_ns"))
        return ArrayGraph.from_edges(src, dst, weight, self.meta["profile"])


def looks_saved(file: Path) -> bool:
    """Return whether the file starts like a saved path, or like a saved path of HTA.

    Only `restore_path` checks the rest of the file.
    """
    return _beginning(file) in (b"PAR1", b"PK\x03\x04")


def is_saved(file: Path) -> bool:
    """Return whether a file is a saved path, even a damaged one. A new saved path may replace such a file."""
    if _beginning(file) != b"PAR1":
        return False
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.rfind(MARK) >= 0


def _beginning(file: Path) -> bytes:
    if not file.is_file():
        return b""
    with file.open("rb") as opened:
        return opened.read(4)


def restore_path(file: Path, parts: Collection[str] = tuple(PARTS)) -> SavedPath:
    """Read a file that `save_path` wrote. Tables that are not among `parts` have no rows.

    Raises NotASavedPath, and OSError if the file cannot be opened.
    """
    with file.open("rb"):
        pass
    if _beginning(file) == b"PK\x03\x04":
        description = "a zip, as HTA saves paths (with pickles, which tracelake does not load) and older versions of tracelake did"
        raise NotASavedPath(
            f"{file} is not a saved path, but {description}; extract the traces from a zip of traces first"
        )
    if not is_saved(file):
        raise NotASavedPath(f"{file} is not a critical path saved by tracelake, or its end is missing")
    _check_digest(file)
    with database.connect() as con:
        try:
            meta = _meta(con, file)
            return SavedPath(meta, **{part: _table(con, file, part, part in parts) for part in PARTS})
        except duckdb.Error as error:
            raise _damaged(file, f"it cannot be read ({error})") from None


def _check_digest(file: Path) -> None:
    """Raise NotASavedPath unless every byte is unchanged since the file was written."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        begin, end = place_of_digest(content)
        if content[begin:end] != digest(content):
            raise _damaged(file, "it is not as it was written")


def place_of_digest(content: mmap.mmap) -> tuple[int, int]:
    """Return the offsets in the file `content` at which the digest of a saved path begins and ends."""
    begin = content.rfind(MARK) + len(MARK)
    return begin, begin + len(BLANK)


def digest(content: mmap.mmap) -> bytes:
    """Return the digest of a saved path. The bytes at the digest's own position count as zeros."""
    begin, end = place_of_digest(content)
    hasher = sha256()
    with memoryview(content) as view:
        for part in (view[:begin], BLANK, view[end:]):
            hasher.update(part)
            if isinstance(part, memoryview):
                part.release()
    return hasher.hexdigest().encode()


def _meta(con: duckdb.DuckDBPyConnection, file: Path) -> dict[str, Any]:
    rows = con.execute(f"SELECT value FROM parquet_kv_metadata({quoted(file)}) WHERE key = '{META}'").fetchall()
    meta = json.loads(rows[0][0]) if rows else {}
    if meta.get("version") != VERSION:
        raise NotASavedPath(
            f"{file} has format version {meta.get('version')!r}; this tracelake reads version {VERSION}. "
            "Read it with the tracelake that wrote it"
        )
    return meta


def _table(con: duckdb.DuckDBPyConnection, file: Path, part: str, with_rows: bool) -> pa.Table:
    """Return a table of the file.

    Few bytes of Parquet can decompress to many rows and long texts, so the size is computed before decompression.
    """
    allowed = allowed_bytes()
    ((rows,),) = con.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({quoted(file)})").fetchall()
    if 8 * rows > allowed:
        raise _too_large(file, f"{rows:,} rows")
    rows = f"SELECT unnest({part}) FROM {parquet_rows(file)} WHERE {part} IS NOT NULL"
    if not with_rows:
        return database.arrow_result(con, f"{rows} LIMIT 0").to_arrow_table()
    kinds = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE {rows}").fetchall()}
    texts = [f"coalesce(strlen({name}), 0)" for name, kind in kinds.items() if kind == "VARCHAR"]
    size = f"8 * {len(kinds)} * count(*) + coalesce(sum({' + '.join(texts) or 0}), 0)"
    ((unpacked,),) = con.execute(f"SELECT {size} FROM ({rows})").fetchall()
    if unpacked > allowed:
        raise _too_large(file, f"its {part} decompress to {int(unpacked) >> 20:,} MiB")
    return database.arrow_result(con, f"FROM ({rows}) ORDER BY {PARTS[part]}").to_arrow_table()


def allowed_bytes() -> int:
    """Return how many bytes a table of a saved path may decompress to: TRACELAKE_MAX_SAVED_MIB, by default 1024 MiB."""
    text = os.environ.get(_ALLOWED, "1024")
    if not text.isdigit():
        raise NotASavedPath(f"{_ALLOWED}={text} is not a number of MiB", "Write it like 2048.")
    return int(text) << 20


def _too_large(file: Path, size: str) -> NotASavedPath:
    allowed = allowed_bytes() >> 20
    return NotASavedPath(
        f"{file} is too large: {size}; {allowed:,} MiB are allowed", f"Raise the limit: {_ALLOWED}=… (MiB)."
    )


def _damaged(file: Path, problem: str) -> NotASavedPath:
    return NotASavedPath(f"{file} is damaged: {problem}. Copy or download it again")
