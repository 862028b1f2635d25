"""Damaged files of a lake, found by names and sizes: cheap enough for every query.

Checks that require reading the files are in `tracelake check` (pipelines/check.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.lake import manifest
from pipelines.lake.layout import REJECTS, RETIRED, Batch, mark_of, table_file, table_of
from pipelines.renamed import names_of, table_now
from pipelines.sqltext import quoted

HINT = (
    "`tracelake check` lists all damage and `tracelake check --repair` repairs it; --without-broken, or "
    "TRACELAKE_WITHOUT_BROKEN=1, answers without it"
)


@dataclass(frozen=True)
class Broken:
    """A table's file in a batch that cannot be used, and why."""

    table: str
    batch: Batch
    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class BrokenFiles(Exception):
    """The answer needs files that are damaged; the message names them and says what to do."""

    def __init__(self, broken: Sequence[Broken]) -> None:
        super().__init__(told(broken))
        self.broken = tuple(broken)


def told(broken: Sequence[Broken]) -> str:
    """Returns a sentence that names the files (a few, if there are many) and says what to do."""
    more = f"; and {len(broken) - 3} more files" if len(broken) > 3 else ""
    return f"{'; '.join(str(one) for one in broken[:3])}{more}. {HINT}"


def find_broken(root: Path, tables: Set[str] | None = None) -> list[Broken]:
    """Returns files of these tables (None: all) that are missing, differ from their recorded size, or were never
    recorded.

    Only committed batches: leftovers of a killed run are not part of the lake. Batches without a log count as intact.
    """
    sizes, known = _listing(root, tables), logs(root)
    found = [one for log in known.values() for one in _of_batch(root, log, tables, sizes)]
    for table, name in sizes:
        # A batch of an older version has a log only of later computations; a log is complete only if it has the mark.
        log = known.get(name)
        if log is None or log.damaged or (tables is not None and table not in tables):
            continue
        if table not in log.records and mark_of(table) in log.records and table != REJECTS:
            found.append(Broken(table, log.batch, table_file(root, table, log.batch), "was not written by tracelake"))
    return found


def logs(root: Path) -> dict[str, manifest.Manifest]:
    """Returns the logs, by batch_id, of batches that retention neither hid nor removed."""
    hidden = _hidden(root)
    names = (batch for batch in manifest.logged_batches(root) if batch.batch_id not in hidden)
    return {batch.batch_id: log for batch in names if (log := _read(root, batch))}


def _of_batch(root: Path, log: manifest.Manifest, tables: Set[str] | None, sizes: _Sizes) -> Iterable[Broken]:
    for table, records in log.records.items():
        if tables is not None and table not in tables:
            continue
        size = sizes.get((table, log.batch.batch_id))
        if size is None:
            if table in log.done and _is_committed(log, table, sizes):
                yield Broken(table, log.batch, table_file(root, table, log.batch), "is missing")
        elif all(record.size != size for record in records):
            why = f"has {size:,} bytes instead of the {records[0].size:,} that were written"
            yield Broken(table, log.batch, table_file(root, table, log.batch), why)


def _is_committed(log: manifest.Manifest, table: str, sizes: _Sizes) -> bool:
    mark = mark_of(table)
    return table == REJECTS or mark in log.done or (mark, log.batch.batch_id) in sizes


_Sizes = dict[tuple[str, str], int]


def _listing(root: Path, tables: Set[str] | None) -> _Sizes:
    """Returns the size of every file of these tables and their marks, by table and batch."""
    folders = {entry.name for entry in _entries(root) if entry.is_dir() and not entry.name.startswith(".")}
    found: _Sizes = {}
    if tables is not None:
        folders &= {name for table in {*tables, *map(mark_of, tables)} for name in names_of(table)}
    for folder in sorted(folders, key=lambda name: name == table_now(name)):  # old folders of a table first
        for day in _entries(root / folder):
            for entry in _entries(day.path):
                if entry.name.endswith(".parquet") and (size := _size(entry)) is not None:
                    found[table_now(folder), entry.name.removesuffix(".parquet")] = size
    return found


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


def _hidden(root: Path) -> set[str]:
    """Returns the batches that retention hid or removed."""
    return {path.stem for path in root.joinpath(RETIRED).glob("**/*.json")}


_cache: dict[tuple[Path, str], tuple[tuple[int, int], manifest.Manifest]] = {}


def _read(root: Path, batch: Batch) -> manifest.Manifest | None:
    """Returns the log of a batch, cached while it does not change, because a process reads it several times."""
    try:
        stat = manifest.path_of(root, batch).stat()
    except FileNotFoundError:
        return None
    stamp = stat.st_size, stat.st_mtime_ns
    known = _cache.get((root, batch.batch_id))
    if known is None or known[0] != stamp:
        log = manifest.read(root, batch)
        if log is None:
            return None
        known = _cache[root, batch.batch_id] = stamp, log
    return known[1]


def unreadable(
    con: duckdb.DuckDBPyConnection, files: Iterable[Path], query: Callable[[Path], str] | None = None
) -> list[Broken]:
    """Returns the files that DuckDB cannot read: to their end, or as far as `query` reads."""
    found = []
    for path in files:
        try:
            con.execute(
                query(path) if query else f"SELECT max(hash(t)) FROM read_parquet({quoted(path)}) AS t"
            ).fetchall()
        except duckdb.Error as error:
            why = f"cannot be read: {str(error).splitlines()[0]}"
            found.append(Broken(table_of(path), Batch(path.stem), path, why))
    return found
