"""Reads a critical path with its graph from one file: Parquet and JSON in a zip, which needs no lake. `saving.py`
writes it.

Nothing in the file is code (HTA's files are Python pickles, which can run code when they are read).

    meta.json       version, trace, window, profile, switches, rules, length and summary, and the digest of every other part
    nodes.parquet   node_id, event_id, is_start, at_ns, and name and category of the event
    edges.parquet   both ends, type, weights, attributed event, and `seq`: the place on the path (NULL: not on it)
    path.parquet    the rows of `critical_path`
    events.parquet  the events of the graph with their class, thread and stream: what a scenario and an edit ask of them
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, field, fields
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import TracelakeError
from pipelines.critical_path.answer.path_answer import PathAnswer

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.critical_path.graph.dependency_graph import ArrayGraph

FORMAT, VERSION = "tracelake critical path", 2
_ALLOWED, _LARGEST_META = "TRACELAKE_MAX_SAVED_MIB", 64 << 20
PARTS = ("nodes", "edges", "path", "events")
_AGAIN = "Save the path again from its trace: tracelake critical-path TRACE --save FILE"


class NotASavedPath(TracelakeError, ValueError):
    """Not a saved path, damaged, or of an unknown version; the message names the file and says what to do."""


@dataclass(frozen=True)
class EditedAnswer(PathAnswer):
    """The answer for a graph that is no longer the trace's; `edited` counts what was added, removed and changed."""

    edited: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SavedPath:
    """A restored path. `nodes`, `edges`, `path` and `events` have the columns above, in order; `meta` is meta.json."""

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
        owner = "owner" if "owner" in self.path.column_names else "name"  # an older tracelake saved no owners
        names = ("event_id", "name", "edge_type", "duration_ns", "bound_by", owner)
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
        known = {one.name for one in fields(PathAnswer)}  # a newer tracelake may have more fields
        said = {name: value for name, value in self.meta["answer"].items() if name in known}
        edited = self.meta.get("edited", {})
        return EditedAnswer(**said, path=path, edited=edited) if any(edited.values()) else PathAnswer(**said, path=path)

    def graph(self) -> ArrayGraph:
        """Returns the graph over node ids, weights in ns as used on the path: `networkx.dag_longest_path` gives the
        path.
        """
        from pipelines.critical_path.graph.dependency_graph import ArrayGraph

        return ArrayGraph.from_edges(
            *(self.edges[name].to_numpy() for name in ("src_node_id", "dst_node_id", "path_weight_ns"))
        )


def looks_saved(file: Path) -> bool:
    """Returns whether the file begins like a saved path; only `restore_path` shows whether it is one."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(4) == b"PK\x03\x04"


def restore_path(file: Path) -> SavedPath:
    """Read what `save_path` wrote. Raises NotASavedPath, and OSError if the file cannot be opened."""
    with file.open("rb"):
        pass
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            wanted = [name for name in ("meta.json", *map(file_of, PARTS)) if name in names]
            _check_sizes(file, {name: archive.getinfo(name).file_size for name in wanted})
            content = {name: _unpacked(archive, name) for name in wanted}
            pickles = [name for name in names if name.endswith((".pkl", ".pickle"))]
    except NotASavedPath:
        raise
    except Exception as error:  # zipfile raises anything from KeyError to struct.error for a damaged archive
        raise _damaged(file, f"the archive cannot be read ({error})") from None
    if "meta.json" not in content:
        why = "it was saved by HTA, whose pickles tracelake does not load" if pickles else "it contains no meta.json"
        raise NotASavedPath(
            f"{file} is not a critical path saved by tracelake: {why}. {_AGAIN}; a zip of traces has to be unpacked."
        )
    meta = _checked(file, content)
    from pyarrow import ArrowException

    try:
        tables = {part: _table(file, file_of(part), content[file_of(part)]) for part in PARTS}
    except (ArrowException, OSError) as error:
        raise _damaged(file, f"a table in it cannot be read ({error})") from None
    return SavedPath(meta, **tables)


def _check_sizes(file: Path, sizes: dict[str, int]) -> None:
    """Refuse an archive that would unpack to more than is allowed, before any of it is unpacked."""
    allowed = allowed_bytes()
    if sum(sizes.values()) > allowed:
        raise _too_large(file, f"its parts unpack to {sum(sizes.values()):,} bytes")
    if sizes.get("meta.json", 0) > _LARGEST_META:
        raise _damaged(file, f"its meta.json unpacks to {sizes['meta.json'] >> 20:,} MiB")


def allowed_bytes() -> int:
    """Returns how much a saved path may unpack to: TRACELAKE_MAX_SAVED_MIB, by default 1024 MiB."""
    given = os.environ.get(_ALLOWED, "1024")
    if not given.isdigit():
        raise NotASavedPath(f"{_ALLOWED}={given} is not a number of MiB")
    return int(given) << 20


def _unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    """Returns a part, with no more bytes than its directory entry says."""
    size = archive.getinfo(name).file_size
    with archive.open(name) as part:
        return part.read(size + 1)


def _table(file: Path, name: str, content: bytes) -> pa.Table:
    """Returns a part as a table. Few bytes of Parquet can stand for many: text sizes are checked before they are
    expanded.
    """
    import pyarrow as pa
    from pyarrow import parquet

    told = parquet.read_metadata(BytesIO(content))
    unpacked = sum(told.row_group(group).total_byte_size for group in range(told.num_row_groups))
    if max(unpacked, 8 * told.num_rows * max(told.num_columns, 1)) > allowed_bytes():
        raise _too_large(file, f"{name} holds {told.num_rows:,} rows, {unpacked >> 20:,} MiB")
    schema = parquet.read_schema(BytesIO(content))
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    table = parquet.read_table(BytesIO(content), read_dictionary=texts)
    for at, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            longest = max(
                (
                    max(map(len, chunk.dictionary.cast(pa.large_binary()).to_pylist()), default=0)
                    for chunk in column.chunks
                ),
                default=0,
            )
            if longest * table.num_rows > 64 * allowed_bytes():
                raise _too_large(file, f"texts of {longest:,} bytes in {table.num_rows:,} rows of {name}")
            table = table.set_column(at, schema.field(at), column.cast(schema.field(at).type))
    return table


def _too_large(file: Path, what: str) -> NotASavedPath:
    allowed = allowed_bytes() >> 20
    return NotASavedPath(
        f"{file} is too large: {what}; {allowed:,} MiB are allowed. Raise the limit with {_ALLOWED}=… (MiB). "
        f"If it cannot be that large, it is damaged. {_AGAIN}"
    )


def _checked(file: Path, content: dict[str, bytes]) -> dict[str, Any]:
    """Returns the content of meta.json, after every part was verified against its digest."""
    try:
        meta = json.loads(content["meta.json"])
        format_, version = meta["format"], meta["version"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(file, "its meta.json cannot be read") from None
    if format_ != FORMAT:
        raise NotASavedPath(f"{file} is not a critical path saved by tracelake, but {format_!r}. {_AGAIN}.")
    if version != VERSION:
        raise NotASavedPath(
            f"{file} has format version {version!r}; this tracelake reads version {VERSION}. Read it with the tracelake that wrote "
            f"it or a newer one. {_AGAIN}, with this tracelake."
        )
    if meta.pop("sha256", None) != digest(meta):
        raise _damaged(file, "meta.json does not match what was written")
    for name in map(file_of, PARTS):
        if name not in content or sha256(content[name]).hexdigest() != meta["parts"].get(name):
            raise _damaged(file, f"{name} is {'not as it was written' if name in content else 'missing'}")
    return meta


def file_of(part: str) -> str:
    """Returns the name of a part in the archive."""
    return f"{part}.parquet"


def _damaged(file: Path, what: str) -> NotASavedPath:
    return NotASavedPath(f"{file} is damaged: {what}. Copy or download it again. {_AGAIN}.")


def digest(meta: dict[str, Any]) -> str:
    """Returns the digest of meta.json itself."""
    return sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
