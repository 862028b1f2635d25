"""Damaged files of a lake, detected by names and sizes, which is cheap enough for every query.

Code that copies the rows of whole files also compares their checksums. All other checks that require reading the files
are in `tracelake check` (pipelines/runs/check.py).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.lake.commit.batch_rows import Record
from pipelines.lake.commit.manifest import Entry, describe, read, shown
from pipelines.lake.names import Batch, table_file, table_of
from pipelines.models.sqltext import parquet_rows

_FEW = 20  # maximum number of batches whose files are checked one by one
HINT = (
    "`tracelake check` lists all damage and `tracelake check --repair` repairs it; --without-broken, or "
    "TRACELAKE_WITHOUT_BROKEN=1, answers without it"
)


@dataclass(frozen=True)
class Broken:
    """A table's file in a batch that cannot be used, and the reason."""

    table: str
    batch: Batch
    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class BrokenFiles(TracelakeError):
    """A failure of an answer that needs damaged files. The message names the files and the remedy."""

    def __init__(self, broken: Sequence[Broken]) -> None:
        super().__init__(damage_sentence(broken))
        self.broken = tuple(broken)


def damage_sentence(broken: Sequence[Broken]) -> str:
    """Return a sentence that names up to three of the broken files and the remedy."""
    more = f"; and {len(broken) - 3} more files" if len(broken) > 3 else ""
    return f"{'; '.join(str(file) for file in broken[:3])}{more}. {HINT}"


def find_broken(root: Path, tables: Set[str] | None, batches: Set[Batch] | None) -> list[Broken]:
    """Return files of these tables (None: all) that are missing or differ from their recorded size.

    Only files of committed batches are checked, because leftovers of a killed run are not part of the lake.
    """
    entries = shown(root)
    if batches is not None:
        entries = {batch.batch_id: entries[batch.batch_id] for batch in batches if batch.batch_id in entries}
    # For a few files, listing all files costs more than checking each file.
    few = batches is not None and tables is not None and len(batches) <= _FEW
    sizes = _sizes_in(root, tables, batches) if few and tables and batches else _listing(root, tables)
    return [file for entry in entries.values() for file in _of_batch(root, entry, tables, sizes)]


def _of_batch(root: Path, entry: Entry, tables: Set[str] | None, sizes: _Sizes) -> Iterable[Broken]:
    indices, name = entry.kind.places, entry.batch.batch_id
    for table in indices if tables is None else tables & indices.keys():
        size = sizes[table].get(name) if table in sizes else None
        expected = entry.sizes[indices[table]]
        if size == expected or not entry.is_committed(table):
            continue
        why = "is missing" if size is None else f"has {size:,} bytes instead of the {expected:,} that were written"
        yield Broken(table, entry.batch, table_file(root, table, entry.batch), why)


def find_altered(root: Path, batches: Iterable[Batch], tables: Set[str] | None) -> list[Broken]:
    """Return files of these batches and tables (None: all tables) whose bytes have changed. This reads all files.

    Files that are missing or have no recorded checksum are not returned.
    """
    manifests = [manifest for batch in batches if (manifest := read(root, batch))]
    return [
        damage
        for manifest in manifests
        for table, record in manifest.records.items()
        if record.digest and (tables is None or table in tables)
        if (damage := altered(table_file(root, table, manifest.batch), record))
    ]


def altered(path: Path, record: Record) -> Broken | None:
    """Compare a file's checksum with its record, and return the damage, or None if the file matches or is missing."""
    try:
        digest = describe(path).digest
    except FileNotFoundError:
        return None
    except OSError as error:
        return Broken(table_of(path), Batch(path.stem), path, f"cannot be read: {error.strerror}")
    if record.digest == digest:
        return None
    return Broken(table_of(path), Batch(path.stem), path, "does not contain the bytes that were written")


_Sizes = dict[str, dict[str, int]]


def _sizes_in(root: Path, tables: Set[str], batches: Set[Batch]) -> _Sizes:
    sizes_by_table: _Sizes = {}
    for table in tables:
        paths = ((batch.batch_id, table_file(root, table, batch)) for batch in batches)
        sizes_by_table[table] = {name: path.stat().st_size for name, path in paths if path.exists()}
    return sizes_by_table


def _listing(root: Path, tables: Set[str] | None) -> _Sizes:
    """Return the size in bytes of every file of these tables, by table and batch."""
    folders = {entry.name for entry in _entries(root) if entry.is_dir() and not entry.name.startswith(".")}
    sizes_by_table: _Sizes = {}
    if tables is not None:
        folders &= tables
    for folder in folders:
        of_table = sizes_by_table.setdefault(folder, {})
        for day in _entries(root / folder):
            for entry in _entries(day.path):
                if entry.name.endswith(".parquet") and (size := _size(entry)) is not None:
                    of_table[entry.name.removesuffix(".parquet")] = size
    return sizes_by_table


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # deleted in the meantime
        return None


def unreadable(
    con: duckdb.DuckDBPyConnection, files: Iterable[Path], query: Callable[[Path], str] | None = None
) -> list[Broken]:
    """Return the files that DuckDB cannot read.

    `query`: a function that returns a SELECT over the necessary part of a file. By default, read the whole file.
    """
    broken = []
    for path in files:
        try:
            con.execute(query(path) if query else f"SELECT max(hash(t)) FROM {parquet_rows(path)} AS t").fetchall()
        except duckdb.Error as error:
            why = f"cannot be read: {str(error).splitlines()[0]}"
            broken.append(Broken(table_of(path), Batch(path.stem), path, why))
    return broken


def stays_damaged(states: Iterable[str], lake: object) -> str | None:
    """Return a sentence on the batches that upkeep left unchanged because of damage, or None without such batches."""
    if not (n := sum(state == "damaged" for state in states)):
        return None
    batches = "1 batch has a damaged file and stays" if n == 1 else f"{n:,} batches have damaged files and stay"
    return f"{batches} as before: tracelake check --repair --lake {shlex.quote(str(lake))}"
