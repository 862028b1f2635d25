"""The batches of a private lake, prepared for the commit to a store, with files by table and without known keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.base import database
from pipelines.lake.commit import manifest
from pipelines.lake.commit.parquet import options
from pipelines.lake.commit.staged_rows import insert_reject
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import (
    CAPTURE_MARK,
    GROWING,
    KEYS,
    MARK,
    REJECTS,
    Batch,
    batch_files,
    mark_of,
    table_of,
    time_in_id,
)
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import create_staged
from pipelines.models.sqltext import parquet_rows, quoted, row

NEWEST = (CAPTURE_MARK, *GROWING)
"""Marker tables whose keys may be committed again. The newest batch of a key counts. Elsewhere, the first counts."""
ONCE = {"schedule_plans": "plan_hash"}
"""Tables that store the rows of each value of a column only once, with the first key that has the value.

A unit cannot know which values the store has.
"""


@dataclass(frozen=True)
class UnitBatch:
    """A committed batch of a private lake: its files by table, and the keys of its marker tables with source paths."""

    batch: Batch
    files: Mapping[str, Staged]
    keys: Mapping[str, Mapping[str, str | None]]

    def new_keys(self, known: Mapping[str, set[str]]) -> dict[str, dict[str, str | None]]:
        """Return the `keys` that are not in `known`, by marker table."""
        return {
            mark: {k: path for k, path in keys.items() if k not in known.get(mark, ())}
            for mark, keys in self.keys.items()
        }

    def without(self, known: Mapping[str, set[str]], folder: Path) -> UnitBatch:
        """Return the batch without the rows of `known` keys, by marker table. Rewrite changed files into `folder`."""
        new_keys = self.new_keys(known)
        files = {}
        for table, staged in self.files.items():
            mark = mark_of(table)
            if table == REJECTS or not known.get(mark):
                files[table] = staged
            elif new_keys.get(mark):
                rows = f"{KEYS[mark]} NOT IN {row(sorted(known[mark]))}"
                failures = tuple(
                    failure for failure in staged.failures if mark != MARK or failure.trace_id in new_keys[mark]
                )
                files[table] = replace(rewritten(staged, rows, folder / f"{table}.parquet"), failures=failures)
        return UnitBatch(self.batch, files, {mark: keys for mark, keys in new_keys.items() if keys})


def unit_batches(unit: Lake) -> list[UnitBatch]:
    """Return the committed batches of a private lake, oldest first, including batches with only rejected files.

    Raise BrokenFiles if a file is missing or damaged, so that no trace is committed without its rows.
    """
    from pipelines.lake.read.damage import BrokenFiles

    if broken := unit.broken():
        raise BrokenFiles(broken)
    committed, visible = unit.all_batches(), manifest.shown(unit.root)
    paths_by_batch: dict[Batch, dict[str, Path]] = {}
    for path in batch_files(unit.root):
        batch = Batch(path.stem)
        if batch.batch_id in visible and (batch in committed or table_of(path) == REJECTS):
            paths_by_batch.setdefault(batch, {})[table_of(path)] = path
    return [_described(unit, batch, paths_by_batch[batch]) for batch in sorted(paths_by_batch)]


def _described(unit: Lake, batch: Batch, paths: Mapping[str, Path]) -> UnitBatch:
    log = manifest.read(unit.root, batch)
    records = log.records if log else {}
    files = {}
    for table, path in paths.items():
        record = records.get(table)
        files[table] = Staged(path, record.n_rows, record.failures, record.version) if record else Staged(path)
    paths_of = (log.keys if log else None) or {}
    marks = {mark: paths[mark] for mark in KEYS if mark in paths}
    with database.scratch() as con:
        keys = {
            mark: {key: paths_of.get(key) for (key,) in con.execute(_keys(mark, path)).fetchall()}
            for mark, path in marks.items()
        }
    return UnitBatch(batch, files, keys)


def _keys(mark: str, path: Path) -> str:
    return f"SELECT DISTINCT {KEYS[mark]} FROM {parquet_rows(path)}"


def rewritten(staged: Staged, where: str, target: Path, columns: str = "*") -> Staged:
    """Write the rows of a file that meet a condition into another file, with the same model version."""
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = f"SELECT {columns} FROM {parquet_rows(staged.path)} WHERE {where}"
    with database.connect() as con:
        con.execute("SET preserve_insertion_order = true")
        con.execute(f"COPY ({rows}) TO {quoted(target)} ({options(staged.version, staged.failures)})")
        n_rows = con.execute(f"SELECT count(*) FROM {parquet_rows(target)}").fetchall()[0][0]
    return replace(staged, path=target, n_rows=n_rows)


def renamed(batch: UnitBatch, new: Batch, folder: Path) -> UnitBatch:
    """Return the batch with another id, in files in `folder`."""
    columns = f"* REPLACE ({quoted(new.batch_id)} AS batch_id)"
    files = {
        table: rewritten(staged, "true", folder / f"{table}.parquet", columns) for table, staged in batch.files.items()
    }
    return replace(batch, batch=new, files=files)


def with_rejects(batch: UnitBatch, reasons: Iterable[tuple[str, str]], folder: Path) -> UnitBatch:
    """Return the batch with further rejected files, given as path and reason, that it does not contain yet."""
    rejects, model, target = batch.files.get(REJECTS), load_catalog().models[REJECTS], folder / f"{REJECTS}.parquet"
    with database.connect() as con:
        own = (
            f"SELECT * FROM {parquet_rows(rejects.path)}"
            if rejects
            else "SELECT NULL AS path, NULL AS reason WHERE false"
        )
        there = set(con.execute(f"SELECT path, reason FROM ({own})").fetchall())
        further = [reason for reason in reasons if reason not in there]
        if not further:
            return batch
        create_staged(con, load_catalog(), REJECTS)
        for path, reason in further:
            insert_reject(con, path, reason, batch.batch)
        rows = f"{model.sql} UNION ALL BY NAME {own}" if rejects else model.sql
        target.parent.mkdir(parents=True, exist_ok=True)
        con.execute(f"COPY ({rows}) TO {quoted(target)} ({options(None, ())})")
    return replace(batch, files={**batch.files, REJECTS: Staged(target, len(there) + len(further))})


def linked(staged: Staged, target: Path) -> Staged:
    """Make a file available at another path, as a hard link or else as a copy, and set its modification time to now.

    A link is safe, because files of a lake never change. The time is set because `Lake.sweep` removes old files without
    a marker.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(staged.path, target)
        os.utime(target)
    except OSError:  # the target is on another file system, links are not supported, or the file is another user's
        target.unlink(missing_ok=True)
        shutil.copyfile(staged.path, target)
    return replace(staged, path=target)


def already(
    batch: UnitBatch,
    known: Callable[[str, Iterable[str]], set[str]],
    rows_of: Callable[[str, Iterable[str]], list[dict[str, Any]]],
    is_there: bool,
) -> dict[str, set[str]]:
    """Return the keys of a batch that must not be committed, by marker table.

    `known`: a function that returns which keys of a marker table the store has. `rows_of`: a function that returns the
    store's rows of these keys, newest last. `is_there`: whether the store has this batch.
    """

    def of_mark(mark: str, keys: Iterable[str]) -> set[str]:
        if mark not in NEWEST:
            return known(mark, keys)
        if is_there:
            return set(keys)
        return _settled(batch, mark, rows_of(mark, keys)) if mark in GROWING else set()

    return {mark: of_mark(mark, keys) for mark, keys in batch.keys.items()}


def hiding_batch(
    batch: Batch,
    keys: Mapping[str, Mapping[str, Any]],
    ids_of: Callable[[str, Iterable[str]], Iterable[str]],
) -> str:
    """Return the newest batch of a store that would hide newer states of these keys in `batch`, or "".

    `keys`: the keys to be committed, by marker table. `ids_of`: a function that returns the ids of the store's batches
    with these keys. A set that may grow is committed only if its state is new, so any later batch in the store would
    hide it. A later batch of a capture may come from another worker, and hides rightly unless its id is in the future.
    An id in the future means that a clock was set back, or that this machine's clock is slow.
    """
    own, now = batch.batch_id, time_in_id(datetime.now(UTC))
    after = {mark: max(own, now) if mark == CAPTURE_MARK else own for mark in NEWEST}
    marks = [mark for mark in after if keys.get(mark)]
    return max((name for mark in marks for name in ids_of(mark, keys[mark]) if name > after[mark]), default="")


def _settled(batch: UnitBatch, mark: str, stored: list[dict[str, Any]]) -> set[str]:
    """Return the keys of the batch's growing sets that the store already has in at least the same state."""
    # Imported here, because queries also open a store, but do not need the readers.
    from pipelines.readers.inputs.file_sets import states
    from pipelines.readers.inputs.find import set_input

    kind = set_input(mark)
    with database.scratch() as con:
        rows = database.rows_of(con, f"FROM {parquet_rows(batch.files[mark].path)}")
    return batch.keys[mark].keys() & kind.settled(states(kind, stored), states(kind, rows))
