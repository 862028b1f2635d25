"""The folder lake as a store: a lake on a local disk, with its locks, catalog and markers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.fleet.captures.grouping import Role
from pipelines.fleet.captures.roles import ROLES, read_roles
from pipelines.lake.commit.ingested_files import settle, settled
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import ANALYST_TEMP, KEYS, MARK, REJECTS, table_file
from pipelines.lake.publish.prices import PRICES
from pipelines.lake.publish.user_causes import CAUSES
from pipelines.lake.publish.user_formulas import OP_FORMULAS, Formula, read_formulas
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.sandbox import connect
from pipelines.lake.read.trace_marks import recent_marks
from pipelines.lake.retain.compaction import compact
from pipelines.lake.retain.retention import retire, retired_traces
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.user_tables import read_given
from pipelines.runs.store.interface import GRACE, Committed, Compacted, Expired, StoreError
from pipelines.runs.store.unit_batches import UnitBatch, already, linked, rewritten, unit_batches


class FolderStore:
    """A Store in a folder. Each batch of a unit is one transaction, whose marker file is moved into place last."""

    def __init__(self, root: str | Path) -> None:
        """Raise UnusablePath."""
        self.lake = Lake(root)
        self.address = str(root)

    def known(self, trace_ids: Iterable[str]) -> set[str]:
        """See Store."""
        return self._known(MARK, trace_ids)

    def _known(self, mark: str, keys: Iterable[str]) -> set[str]:
        requested = set(keys)
        known_keys = requested & self.lake.known(mark).keys()
        return known_keys | (requested & retired_traces(self.lake)) if mark == MARK else known_keys

    def commit(self, unit: Lake) -> Committed:
        """See Store. If it is killed between two batches of the unit, the next call commits the remaining batches."""
        if unit.root.resolve() == self.lake.root.resolve():
            raise StoreError(f"{self.address}: a lake cannot be committed to itself")
        keys: dict[str, list[str]] = {}
        known_keys: dict[str, list[str]] = {}
        n_files = 0
        for batch in unit_batches(unit):
            done, left_out = self._adopt(batch)
            n_files += len(done.files)
            for mark, committed_keys in done.keys.items():
                keys.setdefault(mark, []).extend(sorted(committed_keys))
            for mark, names in left_out.items():
                known_keys.setdefault(mark, []).extend(sorted(names))
        settle(self.lake, settled(unit))
        return Committed(
            {m: tuple(k) for m, k in keys.items()}, {m: tuple(k) for m, k in known_keys.items() if k}, n_files
        )

    def _adopt(self, batch: UnitBatch) -> tuple[UnitBatch, dict[str, set[str]]]:
        """Commit a batch. Return the committed part of it, and the keys that were left out."""
        lake, name = self.lake, batch.batch
        folder = lake.staging(name) / "adopted"
        try:
            left_out = already(batch, self._known, self._has(batch))
            mine = batch.without(left_out, folder)
            # Large files are moved before the lock is taken. Without their marker no reader uses them.
            early = {
                table: linked(s, folder / table) for table, s in mine.files.items() if table not in (*KEYS, REJECTS)
            }
            if early:
                lake.put_all(name, early)
            with lake.commit_lock():
                is_there = self._has(batch)
                late = already(mine, self._known, is_there)
                mine = mine.without(late, folder / "late") if any(late.values()) else mine
                marks = {table: linked(s, folder / table) for table, s in mine.files.items() if table in KEYS}
                rejects = self._new_rejects(mine, folder)
                if rejects:
                    lake.put(REJECTS, name, rejects.path, rejects.n_rows)
                for mark, staged in marks.items():
                    lake.put_all(name, {mark: staged}, mine.keys[mark])
            if early and not marks and not is_there:
                lake.take_away(name, early)
            if REJECTS in mine.files and not rejects:  # the lake has all of these rejects, so none was written
                mine = replace(mine, files={table: staged for table, staged in mine.files.items() if table != REJECTS})
            return mine, {mark: left_out.get(mark, set()) | late.get(mark, set()) for mark in {*left_out, *late}}
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)

    def _has(self, batch: UnitBatch) -> bool:
        return any(table_file(self.lake.root, mark, batch.batch).exists() for mark in KEYS)

    def _new_rejects(self, batch: UnitBatch, folder: Path) -> Staged | None:
        """Return the rejected files that the lake does not have with the same reason. Call it under the lake's lock."""
        if REJECTS not in batch.files:
            return None
        with database.connect() as con, recent_marks(con, self.lake) as marks:
            rows = marks.rejects() if marks else None
            if rows is None and self.lake.committed_files(REJECTS):
                self.lake.create_views(con, [REJECTS])
                rows = f"SELECT path, reason FROM {REJECTS}"
            known_rejects = con.execute(rows).fetchall() if rows else []
        listed = ", ".join(f"({quoted(path)}, {quoted(reason)})" for path, reason in known_rejects)
        new = rewritten(
            batch.files[REJECTS], f"(path, reason) NOT IN ({listed})" if listed else "true", folder / "rejects"
        )
        return new if new.n_rows else None

    def tell(self, prices: Path | None = None, roles: Path | None = None, formulas: Path | None = None) -> None:
        """See Store. The files become the lake's own prices.csv, roles.csv and op_formulas.csv."""
        read_given(prices, roles, formulas)
        self.lake.root.mkdir(parents=True, exist_ok=True)
        for name, path in ((PRICES, prices), (ROLES, roles), (OP_FORMULAS, formulas)):
            if path and path.resolve() != (self.lake.root / name).resolve():
                with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=self.lake.root) as folder:
                    shutil.copyfile(path, Path(folder) / name)
                    os.replace(Path(folder) / name, self.lake.root / name)

    def roles(self) -> Sequence[Role]:
        """See Store."""
        return read_roles(self.lake.root / ROLES)

    def formulas(self) -> Sequence[Formula]:
        """See Store."""
        return read_formulas(self.lake.root / OP_FORMULAS)

    def causes(self) -> bytes:
        """See Store."""
        return content_of(self.lake.root / CAUSES)

    def tables(self) -> list[str]:
        """See Store."""
        return sorted(load_catalog().public)

    def connect(self, settings: Mapping[str, str] | None = None, *, locked: bool = True) -> duckdb.DuckDBPyConnection:
        """See Store. The analysts' file is published first if necessary."""
        return connect(self.lake, settings=settings, locked=locked)

    def expire(
        self, keep_days: int, grace: timedelta = GRACE, dry_run: bool = False, now: datetime | None = None
    ) -> list[Expired]:
        """See Store."""
        retirements = retire(self.lake, keep_days, grace, dry_run, now)
        return [
            Expired(retirement.batch_id, retirement.day, retirement.state, retirement.traces)
            for retirement in retirements
        ]

    def compact(self, dry_run: bool = False, grace: timedelta = GRACE) -> list[Compacted]:
        """See Store. Each past day is merged separately."""
        compaction = compact(self.lake, grace=grace, dry_run=dry_run)
        return [Compacted(merge.day, merge.n_files, merge.n_files_after) for merge in compaction.merges]

    def sweep(self, older_than: timedelta = GRACE) -> list[Any]:
        """See Store. `older_than` is a day for a folder lake."""
        return self.lake.sweep()
