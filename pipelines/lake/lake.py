"""A lake on disk: write a table's batch, commit it, connect to what is committed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import UnusablePath, local_path, utf8_path
from pipelines.lake.commit import manifest
from pipelines.lake.commit.catalog_file import LOCK, REBUILT, writing
from pipelines.lake.commit.locks import held, is_held
from pipelines.lake.commit.manifest import Entry, entries, shown
from pipelines.lake.layout import (
    ANALYST_TEMP,
    KEYS,
    MARK,
    REJECTS,
    STAGING,
    Batch,
    batch_of,
    file_names,
    mark_of,
    table_file,
    table_files,
)
from pipelines.lake.publish.user_causes import CAUSES, with_causes
from pipelines.lake.publish.user_formulas import OP_FORMULAS, catalog_of
from pipelines.lake.read.damage import Broken, BrokenFiles, find_broken, unreadable
from pipelines.lake.read.views import TOLD_BY, committed_rows, trace_rows
from pipelines.lake.version import MARKER, check_layout
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import file_list, quoted

LEFTOVER_SECONDS = 24 * 3600
WITHOUT_BROKEN = "TRACELAKE_WITHOUT_BROKEN"
_FEW = 200  # files whose sizes are compared
_COMPUTE, _TURN = ".compute.lock", ".compute-turn.lock"


@dataclass(frozen=True)
class Staged:
    """A Parquet file to be put in place: its row count and its model's version, if known, and where models failed."""

    path: Path
    n_rows: int | None = None
    failures: tuple[manifest.Failure, ...] = ()
    version: str | None = None


class Lake:
    """A folder of Parquet tables, for several processes at once; a crash leaves the old or the new state.

    An answer that needs a missing or damaged file raises BrokenFiles. `without_broken` (default: whether the
    environment variable TRACELAKE_WITHOUT_BROKEN is set) leaves the file out instead.
    """

    def __init__(self, root: str | Path, without_broken: bool = False) -> None:
        """Creates nothing yet. Raises UnusablePath for a URL, a file or a broken link, and OtherLayout (version.py)."""
        self.without_broken = without_broken or os.environ.get(WITHOUT_BROKEN, "0") not in ("", "0")
        self.root = utf8_path(local_path(root).absolute())
        if self.root.exists() and not self.root.is_dir():
            raise UnusablePath(f"{root} is a file; a lake is a folder")
        if self.root.is_symlink() and not self.root.exists():
            raise UnusablePath(f"{root} is a link to {self.root.readlink()}, which does not exist; mount or create it")
        check_layout(self.root)

    def catalog(self) -> Catalog:
        """Returns the models as they are for this lake: with its own formulas and rules of causes, if it has any."""
        return with_causes(catalog_of(self.root / OP_FORMULAS), self.root / CAUSES)

    @property
    def exists(self) -> bool:
        """Whether any batch is committed."""
        return bool(self.all_batches())

    @property
    def is_writable(self) -> bool:
        """Whether something can be written into it: not where it is mounted read-only, or where it is somebody else's."""
        return not self.root.exists() or os.access(self.root, os.W_OK)

    def new_batch(self) -> Batch:
        """Returns a new batch, named by the time, or right after the newest one if the clock was set back.

        A later batch has the greater id, which decides between two states of a capture and names it.
        """
        batch = Batch.new()
        with self.commit_lock():
            newest = max(entries(self.root), default="")
        return batch if batch.batch_id > newest else Batch(newest).next

    def staging(self, batch: Batch) -> Path:
        """Returns a private folder for a batch, created on first use; no view matches its content."""
        folder = self.root / STAGING / batch.batch_id
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put(
        self,
        table: str,
        batch: Batch,
        staged: Path,
        n_rows: int | None = None,
        keys: Mapping[str, str | None] | None = None,
    ) -> Path:
        """Make a staged Parquet file the table's file of a batch: flushed, then renamed, so never half visible.

        `keys`: for a mark, its keys with the paths that they came from. Raises OSError if the lake cannot be written.
        """
        return self.put_all(batch, {table: Staged(staged, n_rows)}, keys)[0]

    def put_all(
        self,
        batch: Batch,
        staged: Mapping[str, Staged],
        keys: Mapping[str, str | None] | None = None,
        first: Callable[[], None] = lambda: None,
        takes: Iterable[Batch] = (),
    ) -> list[Path]:
        """`put` for several tables of a batch, together: announced, in place, confirmed (manifest.py).

        `first` is called when no other process can put anything in place, and nothing is put if it raises. `takes`: batches
        that this one takes the place of, once its mark is in place.
        """
        for one in staged.values():
            with one.path.open("rb+") as file:
                os.fsync(file.fileno())
        records = {table: manifest.describe(s.path, s.n_rows, s.failures, s.version) for table, s in staged.items()}
        with self.manifest_lock():
            first()
            with writing(self.root) as catalog:
                manifest.note_put(self.root, catalog, batch, records, keys or {}, [one.batch_id for one in takes])
                catalog.commit()
                targets = self._place(batch, {table: one.path for table, one in staged.items()})
                manifest.note_done(self.root, catalog, batch)
        return targets

    def _place(self, batch: Batch, staged: Mapping[str, Path]) -> list[Path]:
        """Rename staged files into place, the mark after all others are on the disk by name."""
        targets = {table: table_file(self.root, table, batch) for table in staged}
        for marks in (False, True):
            folders: set[Path] = set()
            for table in (one for one in staged if (one in KEYS) == marks):
                folder = targets[table].parent
                # After a power loss no commit mark may exist without its batch's files.
                folders |= {folder} if folder.exists() else {folder, folder.parent, self.root}
                folder.mkdir(parents=True, exist_ok=True)
                os.replace(staged[table], targets[table])
            for folder in sorted(folders, reverse=True):  # each once, and its parent after it
                manifest.flush_names(folder)
        return list(targets.values())

    def take_away(self, batch: Batch, tables: Iterable[str], to: Path | None = None) -> list[Path]:
        """Remove the files of these tables of a batch, or move them to a folder; returns what was there.

        They count no more before the first is gone, and marks go first; what a kill leaves is swept.
        """
        gone = sorted(set(tables), key=lambda name: (name not in KEYS, name))
        there = [path for path in (table_file(self.root, table, batch) for table in gone) if path.exists()]
        with writing(self.root) as catalog:
            manifest.note_gone(self.root, catalog, batch, gone)
            catalog.commit()
            for path in there:
                if to is None:
                    path.unlink(missing_ok=True)
                else:
                    to.mkdir(parents=True, exist_ok=True)
                    os.replace(path, to / f"{path.parts[-3]}.parquet")
        return there

    @contextmanager
    def manifest_lock(self) -> Iterator[None]:
        """Held by the one process that puts files in place, or removes them, and records it."""
        with held(self.root, LOCK):
            yield

    @contextmanager
    def commit_lock(self) -> Iterator[None]:
        """Held by one process at a time, only while it checks what is known and puts its commit mark."""
        with held(self.root, ".lock"):
            yield

    @contextmanager
    def publish_lock(self) -> Iterator[None]:
        """Held by one publisher at a time, so that a slow one does not replace a newer file with an older one."""
        with held(self.root, ".publish.lock"):
            yield

    @contextmanager
    def retention_lock(self) -> Iterator[None]:
        """Held by the one process that removes old batches from the lake."""
        with held(self.root, ".retention.lock"):
            yield

    @contextmanager
    def compute_lock(self, on_wait: Callable[[], Any] = lambda: None) -> Iterator[None]:
        """Held by the one process that computes tables, a batch at a time: who waited finds that batch done. It may be nested.

        Processes take turns: one with many batches to do does not keep out one with few. `on_wait` is called before it
        waits. In a lake that this process cannot write nothing is held: a run that finds everything computed needs no more,
        and any other fails when it writes. Raises OSError.
        """
        if not self.is_writable or is_held(self.root, _COMPUTE):
            yield
            return
        with ExitStack() as stack:
            # Whoever waits for the lock has the turn, and who releases the lock and wants it again waits for that.
            with held(self.root, _TURN, on_wait=on_wait):
                stack.enter_context(held(self.root, _COMPUTE, on_wait=on_wait))
            yield

    def known_traces(self) -> dict[str, Batch]:
        """Returns the committed traces and the batch of each."""
        return self.known(MARK)

    def known(self, mark: str) -> dict[str, Batch]:
        """Returns the committed keys of a mark (traces, runs of schedules, op-level jobs) and the batch of each.

        They are in the catalog, also of a file that is damaged: ingesting them again would duplicate them once it is restored.
        Where they are not, they are read from the files; raises BrokenFiles if that cannot be.
        """
        found: dict[str, Batch] = {}
        files = []
        for entry in shown(self.root).values():
            if mark in entry.kind.places:
                if (keys := entry.key_paths()) is not None:
                    found |= dict.fromkeys(keys, entry.batch)
                else:
                    files.append(table_file(self.root, mark, entry.batch))
        return found | self._known(mark, files)

    def _known(self, mark: str, files: list[Path]) -> dict[str, Batch]:
        if not files:
            return {}
        with database.scratch() as con:
            try:
                rows = con.execute(f"SELECT {KEYS[mark]}, batch_id FROM read_parquet({file_list(files)})").fetchall()
            except duckdb.Error:
                return {key: batch_of(path) for path in files for key in self._keys_in(con, mark, path)}
        return {key: Batch(batch_id) for key, batch_id in rows}

    def _keys_in(self, con: duckdb.DuckDBPyConnection, mark: str, path: Path) -> list[str]:
        try:
            return [r[0] for r in con.execute(f"SELECT {KEYS[mark]} FROM read_parquet({quoted(path)})").fetchall()]
        except duckdb.Error as error:
            raise BrokenFiles([Broken(mark, batch_of(path), path, str(error).splitlines()[0])]) from None

    def broken(self, tables: Iterable[str] | None = None, batches: Iterable[Batch] | None = None) -> list[Broken]:
        """Returns files of these tables (or all) that are missing or differ in size from what was written; with `batches`,
        only of those.
        """
        asked = None if tables is None else set(tables)
        only = None if batches is None else set(batches)
        if only == set() or not find_broken(self.root, asked, only):
            return []
        try:  # a writer may have been between two of its steps
            with self.manifest_lock():
                return find_broken(self.root, asked, only)
        except (OSError, UnusablePath):  # a lake that cannot be written here has no writers here
            return find_broken(self.root, asked, only)

    def few_broken(self, tables: Iterable[str]) -> list[Broken]:
        """As `broken`, where these tables have few files; in larger lakes nothing is looked at."""
        asked = set(tables)
        return self.broken(asked) if len(shown(self.root)) * len(asked) <= _FEW else []

    def batches(self, mark: str = MARK) -> list[Batch]:
        """Returns the committed batches of traces (or of another mark), oldest first."""
        return [batch_of(path) for path in table_files(self.root, mark)]

    def all_batches(self) -> set[Batch]:
        """Returns the committed batches of all marks."""
        return {entry.batch for entry in shown(self.root).values() if _is_committed(entry)}

    def committed_files(self, table: str, batches: Set[Batch] | None = None) -> list[Path]:
        """Returns the table's files of committed batches (of `batches`, if already listed), oldest first.

        A file without a mark may be removed again, so nobody else reads it.
        """
        return self.files_of([table], batches)[table]

    def files_of(self, tables: Iterable[str], batches: Set[Batch] | None = None) -> dict[str, list[Path]]:
        """Returns `committed_files` of each of these tables, all as of one moment."""
        found = [
            (entry, _is_committed(entry) if batches is None else entry.batch in batches)
            for entry in shown(self.root).values()
        ]
        return {
            table: [
                table_file(self.root, table, entry.batch)
                for entry, is_committed in found
                if table in entry.kind.places and (is_committed or table == REJECTS)
            ]
            for table in tables
        }

    def versions_of(self, batch: Batch, tables: Iterable[str]) -> dict[str, str]:
        """Returns the model version that each table of a batch was computed with; tables without a file are missing."""
        return self.versions([batch], tables)[batch]

    def versions(self, batches: Iterable[Batch], tables: Iterable[str]) -> dict[Batch, dict[str, str]]:
        """`versions_of` several batches, by the catalog. Few files are looked at, too: their sizes and their footers.

        A table whose file is then damaged has no version, nor has one that lacks a trace for no fault of it.
        """
        asked, listed = list(batches), set(tables)
        known = shown(self.root)
        is_few = len(asked) * len(listed) <= _FEW
        damaged = {(one.batch, one.table) for one in self._damaged(asked, listed)} if is_few else set()
        shared: dict[int, dict[str, str]] = {}  # by kind: batches of one kind share their versions
        found = {}
        for batch in asked:
            if (entry := known.get(batch.batch_id)) is None:
                found[batch] = {}
                continue
            if id(entry.kind) not in shared:
                shared[id(entry.kind)] = {t: v for t, v in entry.kind.versions.items() if t in listed}
            again = {table for table, of in entry.failures.items() if any(one.is_no_fault_of_data for one in of)}
            again |= {table for of, table in damaged if of == batch}
            of_kind = shared[id(entry.kind)]
            found[batch] = {t: v for t, v in of_kind.items() if t not in again} if again else of_kind
        return found

    def _damaged(self, batches: Iterable[Batch], tables: set[str]) -> list[Broken]:
        broken = self.broken(tables, batches)
        there = {path for table in tables for path in (table_file(self.root, table, batch) for batch in batches)}
        files = sorted(path for path in there - {one.path for one in broken} if path.exists())
        with database.scratch() as con:
            try:
                con.execute(_footers(files)).fetchall() if files else None  # DuckDB 2 raises as rows are fetched
            except duckdb.Error:
                broken += unreadable(con, files, lambda path: _footers([path]))
        return broken

    def sweep(self) -> list[Path]:
        """Remove what killed runs left behind more than a day ago; returns what was removed.

        That is: staging folders, files that the catalog does not name or no mark commits, half-built analysts' files.
        """
        temporary = (f"{STAGING}/*", f"{ANALYST_TEMP}*", f"{REBUILT}*", f"{MARKER}-*")
        found = [path for pattern in temporary for path in self.root.glob(pattern)]
        gone = [path for path in found if _is_leftover(path)]
        for path in gone:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # another sweep may be running
            else:
                path.unlink(missing_ok=True)
        return [*gone, *self._sweep_files()]

    def _sweep_files(self) -> list[Path]:
        """Remove files that no batch has. Those of hidden batches stay as long as readers may have them open (retention)."""
        if not self._unnamed() and not self._unmarked():
            return []
        with writing(self.root) as catalog:
            gone = self._unnamed()
            for entry in self._unmarked():
                gone += filter(Path.exists, entry.files(self.root))
                manifest.note_gone(self.root, catalog, entry.batch, entry.kind.places)
            catalog.commit()
            for path in gone:
                path.unlink(missing_ok=True)
        return gone

    def _unnamed(self) -> list[Path]:
        """Files that no batch has, of more than a day ago. Only of these more than the name is looked at."""
        known = {name for entry in entries(self.root).values() for name in entry.file_names}
        paths = (self.root / name for name in file_names(self.root) if name not in known)
        return [path for path in paths if batch_of(path).is_valid and _is_leftover(path)]

    def _unmarked(self) -> list[Entry]:
        """Batches that a killed run left more than a day ago, before their mark was in place."""
        found = (entry for entry in shown(self.root).values() if not entry.kind.is_marked)
        return [entry for entry in found if all(map(_is_leftover, filter(Path.exists, entry.files(self.root))))]

    def create_views(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str], trace_id: str | None = None) -> None:
        """Create views over committed rows in `con`, of one trace or of all; tables without files are left out.

        The views list the files of one moment: what is committed later is in none of them, so no query sees a batch in
        one table and not in another.
        """
        only = f" WHERE trace_id = {quoted(trace_id)}" if trace_id else ""
        asked = list(dict.fromkeys(tables))
        marks = {MARK, *(mark_of(table) for table in asked)}
        order = (*marks, *(t for t in asked if t not in marks))
        files = self.files_of((*order, *TOLD_BY))
        broken = [one for one in self.broken(files) if one.table in order or (one.table in TOLD_BY and MARK in asked)]
        if broken and not self.without_broken:
            raise BrokenFiles(broken)
        bad = {one.path for one in broken}
        files = {table: [path for path in paths if path not in bad] for table, paths in files.items()}
        for table in order:
            if files[table]:
                rows = trace_rows(files) if table == MARK else committed_rows(table, files[table])
                only_here = "" if table == REJECTS or mark_of(table) != MARK else only
                con.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM ({rows}){only_here}")

    def connect(self, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """Returns an in-memory connection with views of the tables, as of now. The caller closes it."""
        con = database.connect()
        self.create_views(con, tables)
        return con


def _is_committed(entry: Entry) -> bool:
    return any(table in KEYS for table in entry.kind.places)


def _footers(files: Iterable[Path]) -> str:
    return f"SELECT count(*) FROM parquet_kv_metadata({file_list(files)})"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a small file in one step, flushed; its folder is created if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _is_leftover(path: Path) -> bool:
    try:
        return path.stat().st_mtime < time.time() - LEFTOVER_SECONDS
    except FileNotFoundError:  # its run ended in the meantime
        return False
