"""Names in a lake: where a table's batch is stored, what is not visible yet, what marks a batch as committed.

`<lake>/<table>/day=YYYY-MM-DD/<batch_id>.parquet`. A file is written under `.staging/` and renamed into place. The file
of `traces` comes last and is the commit mark: rows of other tables count only if their (trace_id, batch_id) is in it.
`rejects` has no mark: its rows are about files that did not become traces. A batch named in `.retired/` is hidden.
"""

from __future__ import annotations

import glob
import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from pipelines.base.datafiles import SQL_DIR
from pipelines.models import header
from pipelines.models.header import stored_tables

# Which tables are stored, and which table commits which, is declared in the headers of sql/: see
# pipelines/models/header.py.
_STORED = stored_tables(SQL_DIR)
_MARKS = {scope: table for table, (scope, key) in _STORED.items() if key}
KEYS = {table: key for table, (_, key) in _STORED.items() if key}
MARK, RUN_MARK, JOB_MARK = _MARKS[header.TRACE], _MARKS[header.RUN], _MARKS[header.JOB]
DUMP_MARK, RECORDING_MARK, CAPTURE_MARK = _MARKS[header.DUMP], _MARKS[header.RECORDING], _MARKS[header.CAPTURE]
# Of these files there may be more later: they are ingested again, and the newest batch of a key counts.
GROWING = (RECORDING_MARK, _MARKS["inspector"], _MARKS["compile_provenance"])


def tables_of(scope: str) -> tuple[str, ...]:
    """Returns the stored tables of a scope, its mark first."""
    return tuple(sorted((t for t, (of, _) in _STORED.items() if of == scope), key=lambda t: (t not in KEYS, t)))


# Tables of captures are computed after ingestion, and again for a capture when late ranks arrive: its newest batch
# counts.
CAPTURE_TABLES = tables_of(header.CAPTURE)
CAPTURE_RANKS = "capture_ranks"
REJECTS = "rejects"
STAGING = ".staging"
RETIRED = ".retired"  # batches that are hidden and will be removed; in `removed/`, those already removed (retention.py)
MERGED = ".merged"  # by batch, the batches that it takes the place of, until each is hidden by itself (compact.py)
MANIFEST = ".manifest"  # record of the files written for each batch (manifest.py)
SETTLED = ".settled.sqlite"  # which files ingestion finished (settled.py)
QUARANTINE = ".quarantine"  # broken files that `tracelake check --repair` took out
OVERLAYS = "overlays"
ANALYST = "analyst.duckdb"
ANALYST_TEMP = ".analyst-"
PUBLISHED = ".published.json"
VERSION_KEY = "tracelake_version"  # in the metadata of a Parquet file: the version of the model that computed it
_BATCH = re.compile(r"^(\d{4})(\d{2})(\d{2})T\d{12}-[0-9a-f]{8}$")


@dataclass(frozen=True, order=True)
class Batch:
    """One ingest run's traces. The id begins with its UTC time to the microsecond, so batches sort by it:
    `20261121T053000123456-1f2e3d4c`.
    """

    batch_id: str

    @classmethod
    def new(cls) -> Batch:
        """Returns a batch of the current time."""
        return cls(f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}")

    @property
    def next(self) -> Batch:
        """Returns a batch one microsecond later."""
        at = datetime.strptime(self.batch_id.partition("-")[0], "%Y%m%dT%H%M%S%f") + timedelta(microseconds=1)
        return Batch(f"{at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}")

    @property
    def is_valid(self) -> bool:
        """Returns whether the id has a lake's format."""
        return _BATCH.match(self.batch_id) is not None

    @property
    def day(self) -> str:
        """Returns the ingest day, `YYYY-MM-DD` (UTC). Raises ValueError for an invalid id."""
        match = _BATCH.match(self.batch_id)
        if not match:
            raise ValueError(f"{self.batch_id!r} is not a batch id")
        return "-".join(match.groups())


def mark_of(table: str) -> str:
    """Returns the table whose file commits a batch of this table."""
    return _MARKS.get(_STORED.get(table, (header.TRACE, None))[0], MARK)


def table_file(root: Path, table: str, batch: Batch) -> Path:
    """Returns where a table's rows of a batch are once visible."""
    # One text: joining a path part by part takes four times as long, and a lake has many files.
    return Path(f"{root}/{table}/day={batch.day}/{batch.batch_id}.parquet")


def table_of(path: Path) -> str:
    """Returns the table that a file in a lake belongs to."""
    return path.parts[-3]


def table_files(root: Path, table: str) -> list[Path]:
    """Returns all visible files of a table, oldest batch first, without files that are not named after a batch."""
    found = table_names(root, table)
    return [found[name] for name in sorted(found)]


def table_names(root: Path, table: str) -> dict[str, Path]:
    """Returns what `table_files` returns, by batch_id."""
    hidden = retired_batches(root)
    found: dict[str, Path] = {}
    for day in _names(root / table):
        if day.startswith("day="):
            found |= files_in(f"{root}/{table}/{day}")
    for name in hidden & found.keys():
        del found[name]
    if table in KEYS or table == REJECTS:  # of other tables nothing counts that is not of a committed batch
        hidden = _merged_away(root, table, found)
        return {name: path for name, path in found.items() if name not in hidden} if hidden else found
    return found


# A folder that changed later than this long ago may change again at what the file system counts as the same time. Linux
# counts in steps of at most 10 ms; a time without such digits may be of a file system that counts in steps of up to 2 s.
_SETTLED_NS, _COARSE_SETTLED_NS = 100_000_000, 2_000_000_000
_State = tuple[int, int, int]


def settles_at(changed_ns: int) -> int:
    """Returns when a change of a folder at this time (ns) is told apart from every later one."""
    return changed_ns + (_SETTLED_NS if changed_ns % _SETTLED_NS else _COARSE_SETTLED_NS)


class _Folder:
    """The names in a folder, and which of them are files of batches."""

    def __init__(self, path: str) -> None:
        self.path, self.names = path, _names(path)

    @cached_property
    def files(self) -> Mapping[str, Path]:
        parts = (name.rpartition(".") for name in self.names)
        named = [batch for batch, _, kind in parts if kind == "parquet" and _BATCH.match(batch)]
        return {batch: Path(f"{self.path}/{batch}.parquet") for batch in named}


_memory: dict[str, tuple[_State, _Folder]] = {}


def files_in(folder: str) -> Mapping[str, Path]:
    """Returns the files of a table's day by batch_id, without those that are not named after a batch."""
    found = _listed(folder)
    return found.files if found else {}


def n_names(folder: str) -> int:
    """Returns how many names a folder has."""
    found = _listed(folder)
    return len(found.names) if found else 0


def _listed(folder: str) -> _Folder | None:
    """Returns what is in a folder, None if there is none. One that did not change since this process listed it is not
    listed again.
    """
    try:
        found = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    state = found.st_ino, found.st_mtime_ns, found.st_ctime_ns
    known = _memory.get(folder)
    if known is None or known[0] != state:
        is_settled = settles_at(max(state[1:])) < time.time_ns()
        known = state, _Folder(folder)
        if is_settled:
            _memory[folder] = known
    return known[1]


def _merged_away(root: Path, table: str, names: Mapping[str, Path]) -> set[str]:
    """Returns which of these batches of a mark, or of `rejects`, another one among them takes the place of.

    The names were listed before: a merge is noted before its batch has a file, and what it hides is retired before its
    note goes. So every listing has either the batch or those that it takes the place of.
    """
    hidden: set[str] = set()
    for name, note in merges(root).items():
        if name in names:
            is_committed = table in KEYS or table_file(root, MARK, Batch(name)).exists()
            hidden |= set(note) if is_committed else {name}
    return (hidden | retired_batches(root)) & names.keys()


def merges(root: Path) -> dict[str, list[str]]:
    """Returns, by batch, the batches that it takes the place of as soon as it is committed."""
    found = {}
    for name in _names(root / MERGED):
        if name.endswith(".json"):
            try:
                found[name.removesuffix(".json")] = json.loads((root / MERGED / name).read_text())["batches"]
            except FileNotFoundError:  # completed meanwhile
                continue
    return found


def _names(folder: Path | str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def batch_files(root: Path, name: str = "*") -> list[Path]:
    """Returns the files of all tables whose name matches, whether or not a mark commits them.

    Folders whose name begins with a dot are skipped: they belong to other processes and may vanish at any moment.
    """
    # pathlib's glob descends into those too, and raises if one disappears meanwhile.
    found = glob.iglob(f"*/day=*/{name}.parquet", root_dir=root)
    return [root / path for path in found]


def retired_batches(root: Path) -> set[str]:
    """Returns the ids of batches that no new reader sees and whose files are about to be removed."""
    return {name.removesuffix(".json") for name in _names(root / RETIRED) if name.endswith(".json")}


def batch_of(path: Path) -> Batch:
    """Returns the batch that a table's file belongs to."""
    return Batch(path.stem)
