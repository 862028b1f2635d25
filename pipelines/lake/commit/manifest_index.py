"""What the logs of all batches say, in brief: `.index.sqlite` in the lake, so that no run reads every log again.

The logs (manifest.py) are the truth: each row here names the size and time of the log that it was made from and carries
a checksum, and a row that does not fit is made again. A lake that cannot be written, or an index that is damaged or
missing, only costs time.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelines.lake.commit import manifest
from pipelines.lake.commit.manifest import Failure
from pipelines.lake.layout import KEYS, MANIFEST, REJECTS, Batch, mark_of

INDEX = ".index.sqlite"
_VERSION = 1
_TABLE = (
    "CREATE TABLE IF NOT EXISTS logs"
    " (batch_id TEXT PRIMARY KEY, log TEXT NOT NULL, brief TEXT NOT NULL, keys TEXT NOT NULL, sum INTEGER NOT NULL)"
    " WITHOUT ROWID"
)


@dataclass(frozen=True)
class Kind:
    """What most batches have in common: their tables, by place in `sizes`, and with which version each was computed."""

    places: dict[str, int]
    versions: dict[str, str]
    undone: frozenset[str]  # recorded, but not known to be in place
    damaged: int

    @cached_property
    def is_marked(self) -> bool:
        """Whether a mark, or `rejects`, is among the tables: the batch was not left by a killed run."""
        return any(table in KEYS or table == REJECTS for table in self.places)


@dataclass(frozen=True)
class Entry:
    """The log of a batch. `log`: its stamp; `sizes`: by place of the table, what its file may be long.

    `is_plain`: whether the log tells for certain which files the batch has.
    """

    batch: Batch
    log: str
    kind: Kind
    sizes: tuple[Any, ...]
    keys: str
    is_plain: bool
    failures: Mapping[str, tuple[Failure, ...]] = field(default_factory=dict)

    @cached_property
    def day(self) -> str | None:
        """The ingest day, as in the names of folders; None if the log is not named after a batch."""
        return self.batch.day if self.batch.is_valid else None

    @property
    def written_at_ns(self) -> int:
        """Returns when the log was last written."""
        return int(self.log.partition(":")[2])

    def sizes_of(self, table: str) -> tuple[int, ...]:
        """Returns what the table's file may be long; none if the batch has no such file."""
        place = self.kind.places.get(table)
        if place is None:
            return ()
        size = self.sizes[place]
        return (size,) if type(size) is int else tuple(size)

    def key_paths(self) -> dict[str, str | None] | None:
        """Returns the keys of the batch's mark with their paths; None if they were not recorded."""
        return json.loads(self.keys)

    def is_committed(self, table: str) -> bool:
        """Whether the log says that the mark of this table was put in place."""
        mark = mark_of(table)
        return table == REJECTS or (mark in self.kind.places and mark not in self.kind.undone)


@dataclass(frozen=True)
class _Seen:
    """The logs as they were last time: size and time (ns) of each, and what they said."""

    stamps: Mapping[str, tuple[int, int]]
    entries: Mapping[str, Entry]
    kinds: dict[str, Kind]


_FEW = 8  # logs that are read as fast as the index
_memory: dict[Path, _Seen] = {}


def entries(root: Path) -> Mapping[str, Entry]:
    """Returns what every log of the lake says, by batch_id, oldest first: the same object as long as no log changed.

    Raises OSError if a log cannot be read.
    """
    stamps = _stamps(root)
    seen = _memory.get(root) or _Seen({}, {}, {})
    if stamps != seen.stamps:
        # Never changed in place: another thread may look, too.
        seen = _memory[root] = _Seen(stamps, _entries(root, stamps, seen), seen.kinds)
    return seen.entries


def entries_of(root: Path, names: Iterable[str]) -> dict[str, Entry]:
    """Returns what the logs of these batches say right now; of those that have one. For few of them: each log is read.

    Raises OSError if a log cannot be read.
    """
    found, kinds = {}, {}
    for name in names:
        if (log := manifest.read(root, Batch(name))) is not None:
            found[name] = _entry(Batch(name), "", *_brief(root, log), kinds)
    return found


def _entries(root: Path, stamps: Mapping[str, tuple[int, int]], seen: _Seen) -> dict[str, Entry]:
    changed = {name: f"{stamp[0]}:{stamp[1]}" for name, stamp in stamps.items() if seen.stamps.get(name) != stamp}
    found = {name: entry for name, entry in seen.entries.items() if name in stamps and name not in changed}
    if len(changed) > _FEW:
        for name, row in _rows(root).items():
            if changed.get(name) == row[0]:
                found[name] = _entry(Batch(name), row[0], row[1], row[2], seen.kinds)
    missing = changed.keys() - found.keys()
    read = {name: manifest.read(root, Batch(name)) or manifest.Manifest(Batch(name), damaged=1) for name in missing}
    made = {name: _brief(root, log) for name, log in read.items()}
    for name, (brief, keys) in made.items():
        found[name] = _entry(Batch(name), changed[name], brief, keys, seen.kinds)
    if missing and len(stamps) > _FEW:
        _write(root, {name: (changed[name], *texts) for name, texts in made.items()}, stamps)
    return {name: found[name] for name in sorted(found)}


def _stamps(root: Path) -> dict[str, tuple[int, int]]:
    stamps = {}
    try:
        with os.scandir(root / MANIFEST) as found:
            for entry in found:
                if not entry.name.startswith("."):
                    try:
                        stat = entry.stat()
                    except FileNotFoundError:  # retired meanwhile
                        continue
                    stamps[entry.name] = stat.st_size, stat.st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return stamps


def _brief(root: Path, log: manifest.Manifest) -> tuple[str, str]:
    kind = {
        "tables": list(log.records),
        "versions": {table: r[0].version for table, r in log.records.items() if r[0].version},
        "undone": sorted(log.records.keys() - log.done),
        "damaged": log.damaged,
    }
    sizes = [r[0].size if len(r) == 1 else [one.size for one in r] for r in log.records.values()]
    failures = {
        table: [astuple(one) for one in records[0].failures]
        for table, records in log.records.items()
        if records[0].failures
    }
    keys = manifest.read_keys(root, log.batch)
    return "\n".join((json.dumps(kind), json.dumps(sizes), json.dumps(failures))), json.dumps(keys)


def _entry(batch: Batch, log: str, brief: str, keys: str, kinds: dict[str, Kind]) -> Entry:
    first, sizes, failed = brief.split("\n")
    if first not in kinds:
        told = json.loads(first)
        places = {table: place for place, table in enumerate(told["tables"])}
        kinds[first] = Kind(places, told["versions"], frozenset(told["undone"]), told["damaged"])
    failures = {table: tuple(Failure(*one) for one in rows) for table, rows in json.loads(failed).items()}
    kind, of_tables = kinds[first], tuple(json.loads(sizes))
    is_plain = not (kind.damaged or kind.undone) and all(type(size) is int for size in of_tables)
    return Entry(batch, log, kind, of_tables, keys, is_plain, failures)


def _rows(root: Path) -> dict[str, tuple[str, str, str]]:
    if not (root / INDEX).exists():
        return {}
    try:
        with closing(_connect(root, "ro")) as con:
            rows = con.execute("SELECT batch_id, log, brief, keys, sum FROM logs").fetchall()
        return {
            str(name): (log, brief, keys)
            for name, log, brief, keys, told in rows
            if told == _sum(name, log, brief, keys)
        }
    except (sqlite3.Error, UnicodeError, TypeError, AttributeError):  # made again
        return {}


def _write(root: Path, rows: Mapping[str, tuple[str, str, str]], present: Iterable[str]) -> None:
    given = [(name, *texts, _sum(name, *texts)) for name, texts in rows.items()]
    try:
        with closing(_connect(root, "rwc")) as con, con:
            con.execute(_TABLE)
            con.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?)", given)
            gone = {name for (name,) in con.execute("SELECT batch_id FROM logs")} - set(present)
            con.executemany("DELETE FROM logs WHERE batch_id = ?", [(name,) for name in gone])
    except sqlite3.OperationalError:  # another process writes it, or it cannot be written
        return
    except sqlite3.DatabaseError:  # damaged: the next process makes it again
        try:
            (root / INDEX).unlink(missing_ok=True)
        except OSError:
            return


def _connect(root: Path, mode: str) -> sqlite3.Connection:
    con = sqlite3.connect(f"file:{quote(os.fsencode(root / INDEX))}?mode={mode}", timeout=1, uri=True)
    con.execute("PRAGMA synchronous = OFF")  # after a power loss it is made again
    return con


def _sum(*texts: str) -> int:
    return zlib.crc32("\n".join((str(_VERSION), *texts)).encode())
