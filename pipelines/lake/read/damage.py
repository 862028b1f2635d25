"""Damaged files of a lake, found by names and sizes: cheap enough for every query.

Checks that require reading the files are in `tracelake check` (pipelines/runs/check.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.lake.commit.manifest_index import Entry, entries, entries_of
from pipelines.lake.layout import REJECTS, RETIRED, Batch, mark_of, n_names, table_file, table_of
from pipelines.models.sqltext import quoted

_FEW = 20  # batches whose files are looked at one by one
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


def find_broken(
    root: Path,
    tables: Set[str] | None = None,
    batches: Set[Batch] | None = None,
    read: Mapping[str, Entry] | None = None,
) -> list[Broken]:
    """Returns files of these tables (None: all) that are missing, differ from their recorded size, or were never
    recorded.

    Only committed batches: leftovers of a killed run are not part of the lake. Batches without a log count as intact.
    `read`: what the logs said a moment ago (`entries`), so as not to look at all of them again.
    """
    # With the listing of all files a few cost more than each on its own.
    few = batches is not None and tables is not None and len(batches) <= _FEW
    if few and batches and read is None:
        read = entries_of(root, [batch.batch_id for batch in batches])
    known = logs(root, read)
    if batches is not None:
        known = {one.batch_id: known[one.batch_id] for one in batches if one.batch_id in known}
    sizes = _sizes_in(root, tables, batches) if few and tables and batches else _listing(root, tables)
    found = [one for entry in known.values() for one in _of_batch(root, entry, tables, sizes)]
    for table, files in sizes.items():
        mark = mark_of(table)
        if table == REJECTS or (tables is not None and table not in tables):
            continue
        for name in files:
            # A log that was lost has only what was computed since; it is complete only if it has the mark.
            kind = known[name].kind if name in known else None
            if kind and not kind.damaged and table not in kind.places and mark in kind.places:
                batch = Batch(name)
                found.append(Broken(table, batch, table_file(root, table, batch), "was not written by tracelake"))
    return found


def _sizes_in(root: Path, tables: Set[str], batches: Set[Batch]) -> _Sizes:
    found: _Sizes = {}
    for table in {*tables, *map(mark_of, tables)}:
        paths = ((batch.batch_id, table_file(root, table, batch)) for batch in batches)
        found[table] = {name: path.stat().st_size for name, path in paths if path.exists()}
    return found


def logs(root: Path, read: Mapping[str, Entry] | None = None) -> Mapping[str, Entry]:
    """Returns what the logs say, by batch_id, of batches that retention neither hid nor removed. `read`: see find_broken."""
    hidden = _hidden(root)
    found = entries(root) if read is None else read
    if hidden.isdisjoint(found):
        return found
    return {name: entry for name, entry in found.items() if name not in hidden}


def all_there(root: Path, read: Mapping[str, Entry] | None = None) -> bool:
    """Whether each folder has as many files as the logs of the batches say: so none is missing.

    Names are counted; only the files of batches whose log does not tell for certain, or that were never committed, are
    looked at. False if a log is damaged, and if something was put in place since `read` (see find_broken).
    """
    kinds: Counter[tuple[int, str]] = Counter()
    by_id = {}
    expected: Counter[tuple[str, str]] = Counter()
    for entry in (entries(root) if read is None else read).values():
        kind, batch = entry.kind, entry.batch
        if kind.damaged or entry.day is None:
            return False
        if entry.is_plain and kind.is_marked:
            by_id[id(kind)] = kind
            kinds[id(kind), entry.day] += 1
            continue
        for table in kind.places:
            if table_file(root, table, batch).exists():
                expected[table, entry.day] += 1
            elif table not in kind.undone and entry.is_committed(table):
                return False
    for (kind_id, day), n in kinds.items():
        for table in by_id[kind_id].places:
            expected[table, day] += n
    return all(n == n_names(f"{root}/{table}/day={day}") for (table, day), n in expected.items())


def _of_batch(root: Path, entry: Entry, tables: Set[str] | None, sizes: _Sizes) -> Iterable[Broken]:
    places, name = entry.kind.places, entry.batch.batch_id
    for table in places if tables is None else tables & places.keys():
        size = sizes[table].get(name) if table in sizes else None
        if size == entry.sizes[places[table]]:
            continue
        if size is None:
            if table not in entry.kind.undone and _is_committed(entry, table, sizes):
                yield Broken(table, entry.batch, table_file(root, table, entry.batch), "is missing")
        elif size not in entry.sizes_of(table):
            why = f"has {size:,} bytes instead of the {entry.sizes_of(table)[0]:,} that were written"
            yield Broken(table, entry.batch, table_file(root, table, entry.batch), why)


def _is_committed(entry: Entry, table: str, sizes: _Sizes) -> bool:
    return entry.is_committed(table) or entry.batch.batch_id in sizes.get(mark_of(table), {})


_Sizes = dict[str, dict[str, int]]


def _listing(root: Path, tables: Set[str] | None) -> _Sizes:
    """Returns the size of every file of these tables and their marks, by table and batch."""
    folders = {entry.name for entry in _entries(root) if entry.is_dir() and not entry.name.startswith(".")}
    found: _Sizes = {}
    if tables is not None:
        folders &= {*tables, *map(mark_of, tables)}
    for folder in folders:
        of_table = found.setdefault(folder, {})
        for day in _entries(root / folder):
            for entry in _entries(day.path):
                if entry.name.endswith(".parquet") and (size := _size(entry)) is not None:
                    of_table[entry.name.removesuffix(".parquet")] = size
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
