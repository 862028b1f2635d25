"""A lake on disk, which writes and commits batches of tables, and opens connections to the committed rows."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import UnusablePath, local_path, utf8_path, without_parents
from pipelines.base.processes import is_running_here, owner_mark
from pipelines.base.whole_file import PART, write_whole
from pipelines.lake.commit import manifest
from pipelines.lake.commit.catalog_file import LOCK, REBUILT, writing
from pipelines.lake.commit.locks import held, is_held
from pipelines.lake.commit.manifest import Entry, entries, shown
from pipelines.lake.names import (
    ANALYST_TEMP,
    KEYS,
    MARK,
    PAGES,
    REJECTS,
    RETIRED,
    STAGING,
    Batch,
    batch_of,
    file_names,
    mark_of,
    table_file,
    time_in_id,
)
from pipelines.lake.publish.user_causes import CAUSES, with_causes
from pipelines.lake.publish.user_formulas import OP_FORMULAS, catalog_of
from pipelines.lake.read.damage import Broken, BrokenFiles, find_altered, find_broken, unreadable
from pipelines.lake.read.views import MEMBERSHIP_TABLES, committed_rows, trace_rows
from pipelines.lake.table_files import table_files
from pipelines.lake.version import check_layout
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import file_list, parquet_rows

LEFTOVER_SECONDS = 24 * 3600
WITHOUT_BROKEN = "TRACELAKE_WITHOUT_BROKEN"
_MOST_AHEAD = timedelta(days=1)  # maximum lead of a batch's id over the clock
_FEW = 200  # maximum number of files to check on each read
_COMPUTE, _TURN = ".compute.lock", ".compute-turn.lock"


@dataclass(frozen=True)
class Staged:
    """A Parquet file to be moved into place, with its row count, its model's version, and its model failures.

    The row count and the version are None if unknown.
    """

    path: Path
    n_rows: int | None = None
    failures: tuple[manifest.Failure, ...] = ()
    version: str | None = None


class Lake:
    """A folder of Parquet tables that several processes may use concurrently. A crash leaves the old or the new state.

    A query that needs a missing or damaged file raises BrokenFiles. With `without_broken`, the file is skipped instead.
    The environment variable TRACELAKE_WITHOUT_BROKEN sets the default.
    """

    def __init__(self, root: str | Path, without_broken: bool = False) -> None:
        """Check the path and the layout without creating files.

        Raise UnusablePath for a URL, a file, a broken link or a path with a question mark. Raise OtherLayout
        (version.py) for another layout.
        """
        self.without_broken = without_broken or os.environ.get(WITHOUT_BROKEN, "0") not in ("", "0")
        self.root = utf8_path(without_parents(local_path(root)).absolute())
        if "?" in f"{self.root}{self.root.resolve()}":
            raise UnusablePath(f"{root}: DuckDB cannot write to a path with a question mark; rename that folder")
        if self.root.exists() and not self.root.is_dir():
            raise UnusablePath(f"{root} is a file; a lake is a folder")
        if self.root.is_symlink() and not self.root.exists():
            raise UnusablePath(f"{root} is a link to {self.root.readlink()}, which does not exist; mount or create it")
        check_layout(self.root)

    def catalog(self) -> Catalog:
        """Return the models for this lake, with the user's formulas and cause rules if the lake has them."""
        return with_causes(catalog_of(self.root / OP_FORMULAS), self.root / CAUSES)

    @property
    def exists(self) -> bool:
        """Return whether any batch is committed."""
        return bool(self.all_batches())

    @property
    def is_writable(self) -> bool:
        """Return whether the lake's folder is writable. A folder that does not exist yet counts as writable."""
        return not self.root.exists() or os.access(self.root, os.W_OK)

    def new_batch(self) -> Batch:
        """Return a new batch whose id is the current time, or just after the newest batch if the clock was set back.

        A later batch always has a greater id. The id decides between two states of a capture and identifies the state.
        Raise UnusablePath if the newest id is more than a day in the future, because later batches would never be old
        enough for retention.
        """
        batch = Batch.new()
        with self.commit_lock():
            newest = max(entries(self.root), default="")
        if newest > time_in_id(datetime.now(UTC) + _MOST_AHEAD):
            raise UnusablePath(
                f"{self.root}: batch {newest} is of the future, so this machine's clock is slow, or was fast then. "
                f"If it was fast: move the folders {self.root}/*/day={Batch(newest).day} out of the lake, run "
                f"`tracelake check --rebuild --lake {shlex.quote(str(self.root))}`, and ingest their files again"
            )
        return batch if batch.batch_id > newest else Batch(newest).next

    def staging(self, batch: Batch) -> Path:
        """Return this process's folder for files of a batch that are not committed, created on first use.

        No view reads its files. Several threads may use the folder at the same time, so each creates its own files or
        folders in it. Its name identifies the owning process, so the owner is known before the folder has files. Before
        creating the folder, delete the folders of killed processes.
        """
        folder = self.root / STAGING / f"{batch.batch_id}@{owner_mark()}"
        if not folder.exists():
            _remove(self._ended_staging())
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @staticmethod
    def unstage(folder: Path) -> None:
        """Delete a folder in a staging folder, and the staging folder if it is then empty."""
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # not empty
            folder.parent.rmdir()

    def _ended_staging(self) -> list[Path]:
        """Return the staging folders of ended processes, and day-old staging folders of unknown processes."""
        return [path for path in self.root.glob(f"{STAGING}/*") if _is_ended(path)]

    def put(
        self,
        table: str,
        batch: Batch,
        staged: Path,
        n_rows: int | None = None,
    ) -> Path:
        """Move a staged Parquet file into place as a batch's file of a table.

        The file is flushed first, so readers never see a part of it. Raise OSError if the lake cannot be written.
        """
        return self.put_all(batch, {table: Staged(staged, n_rows)})[0]

    def put_all(
        self,
        batch: Batch,
        staged: Mapping[str, Staged],
        keys: Mapping[str, str | None] | None = None,
        first: Callable[[], None] = lambda: None,
        takes: Iterable[Batch] = (),
    ) -> list[Path]:
        """Move a batch's staged files into place in three steps: announce, rename and confirm them (manifest.py).

        `keys`: for a marker table, its keys with the paths of their source files. Call `first` under the lock that
        excludes all other writers. If `first` raises, no file is moved. `takes`: batches that this batch replaces when
        its marker is committed.
        """
        for staged_file in staged.values():
            with staged_file.path.open("rb+") as file:
                os.fsync(file.fileno())
        records = {table: manifest.describe(s.path, s.n_rows, s.failures, s.version) for table, s in staged.items()}
        with self.manifest_lock():
            first()
            with writing(self.root) as catalog:
                manifest.note_put(self.root, catalog, batch, records, keys, [replaced.batch_id for replaced in takes])
                catalog.commit()
                targets = self._place(batch, {table: staged_file.path for table, staged_file in staged.items()})
                manifest.note_done(self.root, catalog, batch)
        return targets

    def _place(self, batch: Batch, staged: Mapping[str, Path]) -> list[Path]:
        """Rename staged files into place. The marker is last, after the other files' names are flushed to disk."""
        targets = {table: table_file(self.root, table, batch) for table in staged}
        for marks in (False, True):
            folders: set[Path] = set()
            for table in (name for name in staged if (name in KEYS) == marks):
                folder = targets[table].parent
                # After a power loss, no commit marker may exist without its batch's files.
                folders |= {folder} if folder.exists() else {folder, folder.parent, self.root}
                folder.mkdir(parents=True, exist_ok=True)
                os.replace(staged[table], targets[table])
            for folder in sorted(folders, reverse=True):  # a parent after its subfolders
                manifest.flush_names(folder)
        return list(targets.values())

    def take_away(self, batch: Batch, tables: Iterable[str], to: Path | None = None) -> list[Path]:
        """Remove the files of these tables of a batch, or move them to the folder `to`. Return the paths that existed.

        The catalog drops them before the first file is deleted, and commit markers are deleted first. A later cleanup
        removes the files that a killed process leaves behind.
        """
        tables_to_remove = sorted(set(tables), key=lambda name: (name not in KEYS, name))
        existing_paths = [
            path for path in (table_file(self.root, table, batch) for table in tables_to_remove) if path.exists()
        ]
        with writing(self.root) as catalog:
            manifest.note_gone(self.root, catalog, batch, tables_to_remove)
            catalog.commit()
            for path in existing_paths:
                if to is None:
                    path.unlink(missing_ok=True)
                else:
                    to.mkdir(parents=True, exist_ok=True)
                    os.replace(path, to / f"{path.parts[-3]}.parquet")
        return existing_paths

    @contextmanager
    def manifest_lock(self) -> Iterator[None]:
        """Hold the lock of the process that moves or removes the lake's files and records this in the catalog."""
        with held(self.root, LOCK):
            yield

    @contextmanager
    def commit_lock(self) -> Iterator[None]:
        """Hold the lock for checking the committed keys and adding a commit marker. Hold it only that long."""
        with held(self.root, ".lock"):
            yield

    @contextmanager
    def publish_lock(self) -> Iterator[None]:
        """Hold the lock of the publisher, so that a slow publisher does not replace a newer file with an older file."""
        with held(self.root, ".publish.lock"):
            yield

    @contextmanager
    def retention_lock(self) -> Iterator[None]:
        """Hold the lock of the process that removes old batches from the lake."""
        with held(self.root, ".retention.lock"):
            yield

    @contextmanager
    def compute_lock(self, on_wait: Callable[[], Any] = lambda: None) -> Iterator[None]:
        """Hold the lock of the process that computes tables, one batch at a time. Calls may be nested.

        After the wait, another process may have computed the batch. Processes take turns, so a process with many
        batches does not keep out a process with few. Call `on_wait` before waiting. In a lake that this process cannot
        write, hold no lock. If everything is computed, the run does not need the lock, and otherwise it fails when it
        writes. Raise OSError.
        """
        if not self.is_writable or is_held(self.root, _COMPUTE):
            yield
            return
        with ExitStack() as stack:
            # The process that waits for the lock holds the turn. A process that releases the lock and wants it again
            # must wait for the turn.
            with held(self.root, _TURN, on_wait=on_wait):
                stack.enter_context(held(self.root, _COMPUTE, on_wait=on_wait))
            yield

    def known_traces(self) -> dict[str, Batch]:
        """Return the batch of each committed trace."""
        return self.known(MARK)

    def known(self, mark: str) -> dict[str, Batch]:
        """Return the batch of each committed key of a marker table (traces, schedule runs, op-level jobs).

        The keys come from the catalog. They include the keys of a damaged file, because ingesting them again would
        duplicate them when the file is restored. Keys that the catalog does not have are read from the files. Raise
        BrokenFiles if this fails.
        """
        batch_by_key: dict[str, Batch] = {}
        files = []
        for entry in shown(self.root).values():
            if mark in entry.kind.places:
                if (keys := entry.key_paths()) is not None:
                    batch_by_key |= dict.fromkeys(keys, entry.batch)
                else:
                    files.append(table_file(self.root, mark, entry.batch))
        return batch_by_key | self._known(mark, files)

    def _known(self, mark: str, files: list[Path]) -> dict[str, Batch]:
        if not files:
            return {}
        with database.scratch() as con:
            try:
                rows = con.execute(f"SELECT {KEYS[mark]}, batch_id FROM {parquet_rows(files)}").fetchall()
            except duckdb.Error:
                return {key: batch_of(path) for path in files for key in self._keys_in(con, mark, path)}
        return {key: Batch(batch_id) for key, batch_id in rows}

    def _keys_in(self, con: duckdb.DuckDBPyConnection, mark: str, path: Path) -> list[str]:
        try:
            return [r[0] for r in con.execute(f"SELECT {KEYS[mark]} FROM {parquet_rows(path)}").fetchall()]
        except duckdb.Error as error:
            raise BrokenFiles([Broken(mark, batch_of(path), path, str(error).splitlines()[0])]) from None

    def broken(self, tables: Iterable[str] | None = None, batches: Iterable[Batch] | None = None) -> list[Broken]:
        """Return the files of these tables (or all) that are missing or differ in size from the recorded size.

        With `batches`, check only the files of these batches.
        """
        listed = None if tables is None else set(tables)
        only = None if batches is None else set(batches)
        if only == set() or not find_broken(self.root, listed, only):
            return []
        try:  # check again under the lock, because a writer may have been between two of its steps
            with self.manifest_lock():
                return find_broken(self.root, listed, only)
        except (OSError, UnusablePath):  # this process cannot obtain the lock
            return find_broken(self.root, listed, only)

    def altered(self, batches: Iterable[Batch], tables: Set[str] | None = None) -> list[Broken]:
        """Return files of these batches and tables (None: all tables) whose bytes have changed. This reads all files.

        Call it before the rows are copied, because the copy would have a valid checksum. After a rebuild of the
        catalog, no checksums are known. Raise OSError or UnusablePath.
        """
        if not (suspects := find_altered(self.root, batches, tables)):
            return []
        with self.manifest_lock():  # a writer may have been between two of its steps
            return find_altered(self.root, {file.batch for file in suspects}, {file.table for file in suspects})

    def few_broken(self, tables: Iterable[str]) -> list[Broken]:
        """Return the broken files of these tables. If the lake is large, return [] without a check.

        A lake is large if batches times tables exceed _FEW (200).
        """
        listed = set(tables)
        return self.broken(listed) if len(shown(self.root)) * len(listed) <= _FEW else []

    def batches(self, mark: str = MARK) -> list[Batch]:
        """Return the committed batches of traces (or of another marker table), oldest first."""
        return [batch_of(path) for path in table_files(self.root, mark)]

    def is_digest(self, batch: Batch) -> bool:
        """Return whether only a digest of the batch's traces or captures remains. Its tables are never outdated."""
        entry = shown(self.root).get(batch.batch_id)
        return entry is not None and entry.kind.is_digest

    def all_batches(self) -> set[Batch]:
        """Return the committed batches of all marker tables."""
        return {entry.batch for entry in shown(self.root).values() if _is_committed(entry)}

    def committed_files(self, table: str, batches: Set[Batch] | None = None) -> list[Path]:
        """Return the table's files of committed batches (or of `batches`, if passed), oldest first.

        A file without a marker may be removed, so no reader uses it.
        """
        return self.files_of([table], batches)[table]

    def intact_files(self, table: str) -> list[Path]:
        """Return the table's `committed_files` that exist with the recorded size."""
        broken_paths = {broken_file.path for broken_file in self.broken({table})}
        return [path for path in self.committed_files(table) if path not in broken_paths]

    def files_of(
        self,
        tables: Iterable[str],
        batches: Set[Batch] | None = None,
        visible: Mapping[str, Entry] | None = None,
    ) -> dict[str, list[Path]]:
        """Return the `committed_files` of each of these tables, all from the same state of the catalog.

        `visible`: the visible batches in this state, by default in the current state.
        """
        entry_states = [
            (entry, _is_committed(entry) if batches is None else entry.batch in batches)
            for entry in (shown(self.root) if visible is None else visible).values()
        ]
        return {
            table: [
                table_file(self.root, table, entry.batch)
                for entry, is_committed in entry_states
                if table in entry.kind.places and (is_committed or table == REJECTS)
            ]
            for table in tables
        }

    def versions_of(self, batch: Batch, tables: Iterable[str]) -> dict[str, str]:
        """Return the version of the model that computed each table of a batch. Omit tables without a file."""
        return self.versions([batch], tables)[batch]

    def versions(self, batches: Iterable[Batch], tables: Iterable[str]) -> dict[Batch, dict[str, str]]:
        """Return `versions_of` for several batches, from the catalog. Check sizes and footers if the files are few.

        A table with a damaged file has no version. Nor does a table with a missing trace whose model may succeed when
        rerun.
        """
        wanted_batches, wanted_tables = list(batches), set(tables)
        entries_by_id = shown(self.root)
        is_few = len(wanted_batches) * len(wanted_tables) <= _FEW
        damaged = (
            {(broken_file.batch, broken_file.table) for broken_file in self._damaged(wanted_batches, wanted_tables)}
            if is_few
            else set()
        )
        shared: dict[int, dict[str, str]] = {}  # by kind, because batches of one kind share their versions
        versions_by_batch = {}
        for batch in wanted_batches:
            if (entry := entries_by_id.get(batch.batch_id)) is None:
                versions_by_batch[batch] = {}
                continue
            if id(entry.kind) not in shared:
                shared[id(entry.kind)] = {t: v for t, v in entry.kind.versions.items() if t in wanted_tables}
            outdated = {
                table
                for table, failures in entry.failures.items()
                if any(failure.is_no_fault_of_data for failure in failures)
            }
            outdated |= {table for damaged_batch, table in damaged if damaged_batch == batch}
            of_kind = shared[id(entry.kind)]
            versions_by_batch[batch] = {t: v for t, v in of_kind.items() if t not in outdated} if outdated else of_kind
        return versions_by_batch

    def _damaged(self, batches: Iterable[Batch], tables: set[str]) -> list[Broken]:
        broken = self.broken(tables, batches)
        paths = {path for table in tables for path in (table_file(self.root, table, batch) for batch in batches)}
        files = sorted(path for path in paths - {broken_file.path for broken_file in broken} if path.exists())
        with database.scratch() as con:
            try:
                con.execute(_footers(files)).fetchall() if files else None  # DuckDB 2 raises only when rows are fetched
            except duckdb.Error:
                broken += unreadable(con, files, lambda path: _footers([path]))
        return broken

    def sweep(self) -> list[Path]:
        """Remove leftovers of killed runs, and return the removed paths.

        Leftovers are staging folders of ended processes of this machine. The following are leftovers if they are more
        than a day old: other staging folders, files that the catalog does not name or that no marker commits, partial
        analysts' files, and partial notices and pages.
        """
        parts = (f"{folder}.*{PART}" for folder in ("", f"{RETIRED}/", f"{PAGES}/"))
        temporary = (f"{ANALYST_TEMP}*", f"{REBUILT}*", *parts)
        paths = [path for pattern in temporary for path in self.root.glob(pattern)]
        leftovers = self._ended_staging() + [path for path in paths if _is_leftover(path)]
        _remove(leftovers)
        return [*leftovers, *self._sweep_files()]

    def _sweep_files(self) -> list[Path]:
        """Remove files that belong to no batch. Files of hidden batches stay, because readers may have them open."""
        if not self._unnamed() and not self._unmarked():
            return []
        with writing(self.root) as catalog:
            leftovers = self._unnamed()
            for entry in self._unmarked():
                leftovers += self._leftovers_of(entry)
                manifest.note_gone(self.root, catalog, entry.batch, entry.kind.leftovers)
            catalog.commit()
            for path in leftovers:
                path.unlink(missing_ok=True)
        return leftovers

    def _unnamed(self) -> list[Path]:
        """Return files of no batch that are more than a day old. Of all other files, read only the names."""
        named = {name for entry in entries(self.root).values() for name in entry.file_names}
        paths = (self.root / name for name in file_names(self.root) if name not in named)
        return [path for path in paths if batch_of(path).is_valid and _is_leftover(path)]

    def _unmarked(self) -> list[Entry]:
        """Return batches without a marker whose files a killed run left more than a day ago."""
        unmarked = (entry for entry in shown(self.root).values() if entry.kind.leftovers)
        return [entry for entry in unmarked if all(map(_is_leftover, self._leftovers_of(entry)))]

    def _leftovers_of(self, entry: Entry) -> list[Path]:
        paths = (table_file(self.root, table, entry.batch) for table in entry.kind.leftovers)
        return [path for path in paths if path.exists()]

    def create_views(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> None:
        """Create views over committed rows in `con`. Skip tables without files.

        All views list the files of the same catalog state. A batch that is committed later is in none of them, so no
        query sees the batch in only some tables.
        """
        listed = list(dict.fromkeys(tables))
        marks = {MARK, *(mark_of(table) for table in listed)}
        order = (*marks, *(t for t in listed if t not in marks))
        files = self.files_of((*order, *MEMBERSHIP_TABLES))
        broken = [
            file
            for file in self.broken(files)
            if file.table in order or (file.table in MEMBERSHIP_TABLES and MARK in listed)
        ]
        if broken and not self.without_broken:
            raise BrokenFiles(broken)
        bad = {file.path for file in broken}
        files = {table: [path for path in paths if path not in bad] for table, paths in files.items()}
        for table in order:
            if files[table]:
                rows = trace_rows(files) if table == MARK else committed_rows(table, files[table])
                con.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM ({rows})")

    def connect(self, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """Return an in-memory connection with views of the tables in their current state. The caller closes it."""
        con = database.connect()
        self.create_views(con, tables)
        return con


def _is_committed(entry: Entry) -> bool:
    return any(table in KEYS for table in entry.kind.places)


def _footers(files: Iterable[Path]) -> str:
    return f"SELECT count(*) FROM parquet_kv_metadata({file_list(files)})"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a small JSON file as `write_whole` does. Create its folder if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content))


def _is_ended(staging: Path) -> bool:
    """Return whether a staging folder's process has ended, or if this is unknown, whether the folder is a day old."""
    is_running = is_running_here(staging.name.partition("@")[2])
    return _is_leftover(staging) if is_running is None else not is_running


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # another sweep may be running
        else:
            path.unlink(missing_ok=True)


def _is_leftover(path: Path) -> bool:
    try:
        return path.stat().st_mtime < time.time() - LEFTOVER_SECONDS
    except FileNotFoundError:  # its run ended in the meantime
        return False
