"""Reads a critical path with its graph from one file, which needs neither trace nor lake: Parquet, whatever its name.
`save_path.py` writes it.

Each row belongs to one table, whose columns are the fields of the only one of these that is not NULL:

    nodes   node_id, event_id, is_start, at_ns, and name and category of the event
    edges   both ends, type, weights, attributed event, what bounds it, and `seq`: the place on the path (NULL: not on it)
    path    the rows of `critical_path`
    events  the events of the graph with their class, thread and stream: what a scenario and an edit ask of them

Everything else is JSON in the file's metadata: version, trace (with what was found if its file ends early), window, profile,
switches, rules, length and summary. The last entry there is a digest of the whole file.
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
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.critical_path.graph.dependency_graph import ArrayGraph

VERSION = 3
META, DIGEST = "tracelake_path", "tracelake_digest"
"""The keys of the metadata."""
MARK, BLANK = b"sha256 of this file with zeros here: ", b"0" * 64
PARTS = {"nodes": "node_id", "edges": "edge_id", "path": "seq", "events": "event_id"}
"""The tables, each with the column that it is in order of."""
_ALLOWED = "TRACELAKE_MAX_SAVED_MIB"


class NotASavedPath(TracelakeError, ValueError):
    """Not a saved path, damaged, or of an unknown version; the message names the file."""

    hint = "Save the path again from its trace: tracelake critical-path TRACE --save FILE"


@dataclass(frozen=True)
class EditedAnswer(PathAnswer):
    """The answer for a graph that is no longer the trace's; `edited` counts what was added, removed and changed."""

    edited: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SavedPath:
    """A restored path. `nodes`, `edges`, `path` and `events` have the columns above, in order; `meta` is the metadata."""

    meta: dict[str, Any]
    nodes: pa.Table
    edges: pa.Table
    path: pa.Table
    events: pa.Table

    @property
    def title(self) -> str:
        """Returns what the path belongs to, for a heading; including how much of the graph was edited, if anything."""
        trace, window = self.meta["trace"], self.meta["window"]
        annotation = f", {window['annotation']} {window['first_instance']}:{window['last_instance']}"
        edited = ", ".join(f"{n:,} {what}" for what, n in self.meta.get("edited", {}).items() if n)
        return (
            f"{trace['file'] or trace['trace_id']}{annotation if window['annotation'] else ''}, "
            f"profile {self.meta['profile']}{f', edited: {edited}' if edited else ''}"
        )

    @property
    def answer(self) -> PathAnswer:
        """Returns the answer that was saved, with its path."""
        names = ("event_id", "name", "edge_type", "duration_ns", "bound_by", "owner")
        columns = (self.path[name].to_pylist() for name in names)
        path = [
            {
                "event_id": event,
                "name": name,
                "edge_type": kind,
                "duration_us": ns / 1000,
                "bound_by": bound_by,
                "owner": who,
            }
            for event, name, kind, ns, bound_by, who in zip(*columns, strict=True)
        ]
        inferred = np.flatnonzero(flags(self.path, "is_inferred")).tolist()
        said = {**self.meta["answer"], "path": path, "inferred": inferred}
        edited = self.meta.get("edited", {})
        return EditedAnswer(**said, edited=edited) if any(edited.values()) else PathAnswer(**said)

    def graph(self) -> ArrayGraph:
        """Returns the graph over node ids, weights in ns as used on the path: `networkx.dag_longest_path` gives the
        path.
        """
        from pipelines.critical_path.graph.dependency_graph import ArrayGraph

        src, dst, weight = (self.edges[name].to_numpy() for name in ("src_node_id", "dst_node_id", "path_weight_ns"))
        return ArrayGraph.from_edges(src, dst, weight, self.meta["profile"])


def looks_saved(file: Path) -> bool:
    """Returns whether the file begins like a saved path, or like one of HTA; only `restore_path` shows whether it is one."""
    return _beginning(file) in (b"PAR1", b"PK\x03\x04")


def is_saved(file: Path) -> bool:
    """Returns whether the file is a saved path, which may be replaced; perhaps a damaged one."""
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
    """Read what `save_path` wrote; of tables that are not among `parts`, no row. Raises NotASavedPath, and OSError if the file
    cannot be opened.
    """
    with file.open("rb"):
        pass
    if _beginning(file) == b"PK\x03\x04":
        what = "a zip, as HTA saves paths (with pickles, which tracelake does not load) and older versions of tracelake did"
        raise NotASavedPath(f"{file} is not a saved path, but {what}; a zip of traces has to be unpacked")
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
    """Raise NotASavedPath unless every byte is as it was written."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at, end = place_of_digest(content)
        if content[at:end] != digest(content):
            raise _damaged(file, "it is not as it was written")


def place_of_digest(content: mmap.mmap) -> tuple[int, int]:
    """Returns where in a saved path its digest begins and ends."""
    at = content.rfind(MARK) + len(MARK)
    return at, at + len(BLANK)


def digest(content: mmap.mmap) -> bytes:
    """Returns the digest of a saved path, whatever is in its place now."""
    at, end = place_of_digest(content)
    whole = sha256()
    with memoryview(content) as view:
        for part in (view[:at], BLANK, view[end:]):
            whole.update(part)
            if isinstance(part, memoryview):
                part.release()
    return whole.hexdigest().encode()


def _meta(con: duckdb.DuckDBPyConnection, file: Path) -> dict[str, Any]:
    found = con.execute(f"SELECT value FROM parquet_kv_metadata({quoted(file)}) WHERE key = '{META}'").fetchall()
    meta = json.loads(found[0][0]) if found else {}
    if meta.get("version") != VERSION:
        raise NotASavedPath(
            f"{file} has format version {meta.get('version')!r}; this tracelake reads version {VERSION}. "
            "Read it with the tracelake that wrote it"
        )
    return meta


def _table(con: duckdb.DuckDBPyConnection, file: Path, part: str, with_rows: bool) -> pa.Table:
    """Returns a table of the file. Few bytes of Parquet can stand for many rows and long texts: they are counted before they
    are unpacked.
    """
    allowed = allowed_bytes()
    ((rows,),) = con.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({quoted(file)})").fetchall()
    if 8 * rows > allowed:
        raise _too_large(file, f"{rows:,} rows")
    rows = f"SELECT unnest({part}) FROM read_parquet({quoted(file)}) WHERE {part} IS NOT NULL"
    if not with_rows:
        return database.arrow_result(con, f"{rows} LIMIT 0").to_arrow_table()
    kinds = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE {rows}").fetchall()}
    texts = [f"coalesce(strlen({name}), 0)" for name, kind in kinds.items() if kind == "VARCHAR"]
    size = f"8 * {len(kinds)} * count(*) + coalesce(sum({' + '.join(texts) or 0}), 0)"
    ((unpacked,),) = con.execute(f"SELECT {size} FROM ({rows})").fetchall()
    if unpacked > allowed:
        raise _too_large(file, f"its {part} unpack to {int(unpacked) >> 20:,} MiB")
    return database.arrow_result(con, f"FROM ({rows}) ORDER BY {PARTS[part]}").to_arrow_table()


def allowed_bytes() -> int:
    """Returns how much a table of a saved path may unpack to: TRACELAKE_MAX_SAVED_MIB, by default 1024 MiB."""
    given = os.environ.get(_ALLOWED, "1024")
    if not given.isdigit():
        raise NotASavedPath(f"{_ALLOWED}={given} is not a number of MiB", "Write it like 2048.")
    return int(given) << 20


def _too_large(file: Path, what: str) -> NotASavedPath:
    allowed = allowed_bytes() >> 20
    return NotASavedPath(
        f"{file} is too large: {what}; {allowed:,} MiB are allowed", f"Raise the limit: {_ALLOWED}=… (MiB)."
    )


def _damaged(file: Path, what: str) -> NotASavedPath:
    return NotASavedPath(f"{file} is damaged: {what}. Copy or download it again")
