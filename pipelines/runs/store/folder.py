"""The folder lake as a store, on a local disk, with locks, a catalog and commit markers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.fleet.captures.grouping import Role
from pipelines.fleet.captures.roles import ROLES, read_roles
from pipelines.lake.commit.catalog_file import content
from pipelines.lake.commit.ingested_files import settle, settled
from pipelines.lake.commit.model_failures import LeftOut, failures_of, left_out_of
from pipelines.lake.inbox import accounted_for
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import ANALYST_TEMP, CAPTURE_MARK, COUNTER_MARK, KEYS, MARK, REJECTS, Batch, table_file
from pipelines.lake.publish.analyst_file import analyst, published_whole_and_now
from pipelines.lake.publish.prices import PRICES
from pipelines.lake.publish.user_causes import CAUSES
from pipelines.lake.publish.user_formulas import OP_FORMULAS, Formula, read_formulas
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.known_rejects import stage_known_rejects
from pipelines.lake.read.one_trace import find_trace, show_trace
from pipelines.lake.read.sandbox import connect
from pipelines.lake.read.superseded_traces import superseded_by_batch
from pipelines.lake.retain.compaction import compact
from pipelines.lake.retain.retention import retire, retired_traces
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.runs.materialize.per_capture import known_captures
from pipelines.runs.materialize.per_trace import materialize, stale_batches
from pipelines.runs.store.committed_rows import RowsOfFolder
from pipelines.runs.store.ducklake.user_tables import read_files
from pipelines.runs.store.interface import GRACE, Committed, CommittedRows, Compacted, Expired, StaleBatch, StoreError
from pipelines.runs.store.requested_tables import TablesOfLake, requested_tables
from pipelines.runs.store.unit_batches import (
    ONCE,
    UnitBatch,
    already,
    hiding_batch,
    linked,
    renamed,
    rewritten,
    unit_batches,
    with_rejects,
)

if TYPE_CHECKING:
    from pipelines.lake.status import Limits, Status
    from pipelines.runs.check import Checked
    from pipelines.runs.forget import Forgotten

_BYTES_PER_BYTE = 20  # estimated bytes of JSON per byte of `events` in Parquet


class FolderStore:
    """A Store in a folder. Each batch of a unit is one transaction. Its marker file is moved into place last."""

    def __init__(self, lake: Lake | Path | str, without_broken: bool = False) -> None:
        """Open the lake in a folder. Raise UnusablePath.

        `without_broken`: answer without missing or damaged files of the lake.
        """
        self.lake: Lake = lake if isinstance(lake, Lake) else Lake(lake, without_broken)
        self.address = str(self.lake.root)
        self._named = str(lake.root if isinstance(lake, Lake) else lake)

    @property
    def exists(self) -> bool:
        """See Store."""
        return self.lake.exists

    def accounted_for(self, trace_ids: Iterable[str]) -> set[str]:
        """See Store."""
        return accounted_for(self.lake).intersection(trace_ids)

    def known(self, trace_ids: Iterable[str]) -> set[str]:
        """See Store."""
        return self._known(MARK, trace_ids)

    def _known(self, mark: str, keys: Iterable[str]) -> set[str]:
        requested = set(keys)
        known_keys = requested & self.lake.known(mark).keys()
        # The counters of a removed trace must not be committed without the trace.
        return known_keys | (requested & retired_traces(self.lake)) if mark in (MARK, COUNTER_MARK) else known_keys

    def _rows_of(self, mark: str, keys: Iterable[str]) -> list[dict[str, Any]]:
        # Imported here, because queries do not need the readers.
        from pipelines.readers.inputs.file_sets import committed_row_dicts

        requested = set(keys)
        return [row for row in committed_row_dicts(self.lake, mark) if row[KEYS[mark]] in requested]

    def _ids_of(self, mark: str, keys: Iterable[str]) -> list[str]:
        if mark != CAPTURE_MARK:
            return [row["batch_id"] for row in self._rows_of(mark, keys)]
        captures = known_captures(self.lake)
        return [captures[name].batch.batch_id for name in keys if name in captures]

    def commit(self, unit: Lake) -> Committed:
        """See Store. If the process is killed between two batches, the next call commits the remaining batches."""
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
        """Commit a batch. Return its committed part, and the keys that were not committed."""
        lake = self.lake
        # Use a separate folder, because another process may compute the batch's tables in the staging folder.
        folder = Path(tempfile.mkdtemp(dir=lake.staging(batch.batch)))
        try:
            left_out = already(batch, self._known, self._rows_of, self._has(batch))
            mine = batch.without(left_out, folder)
            if mine.keys and (self._had(batch) or hiding_batch(mine.batch, mine.keys, self._ids_of)):
                mine = renamed(mine, lake.new_batch(), folder / "renamed")
            name = mine.batch
            # Move large files before obtaining the lock. Without their marker, no reader uses them.
            late_tables = (*KEYS, *ONCE, REJECTS)
            early = {table: linked(s, folder / table) for table, s in mine.files.items() if table not in late_tables}
            if early:
                lake.put_all(name, early)
            with lake.commit_lock():
                is_there = self._has(mine)
                late = already(mine, self._known, self._rows_of, is_there)
                mine = mine.without(late, folder / "late") if any(late.values()) else mine
                mine = self._with_superseded(mine, folder)
                marks = {table: linked(s, folder / table) for table, s in mine.files.items() if table in KEYS}
                rejects = self._new_rejects(mine, folder)
                if rejects:
                    lake.put(REJECTS, name, rejects.path, rejects.n_rows)
                for table in ONCE.keys() & mine.files.keys():
                    lake.put_all(name, {table: self._not_stored(table, mine.files[table], folder)})
                for mark, staged in marks.items():
                    lake.put_all(name, {mark: staged}, mine.keys[mark])
            if early and not marks and not is_there:
                lake.take_away(name, early)
            if REJECTS in mine.files and not rejects:  # the lake has all of these rejects, so no file was written
                mine = replace(mine, files={table: staged for table, staged in mine.files.items() if table != REJECTS})
            return mine, {mark: left_out.get(mark, set()) | late.get(mark, set()) for mark in {*left_out, *late}}
        finally:
            lake.unstage(folder)

    def _has(self, batch: UnitBatch) -> bool:
        return any(table_file(self.lake.root, mark, batch.batch).exists() for mark in KEYS)

    def _had(self, batch: UnitBatch) -> bool:
        """Return whether this batch's files would replace files with other keys, or would stay hidden."""
        return self._has(batch) or batch.batch.batch_id in content(self.lake.root).notices

    def _not_stored(self, table: str, staged: Staged, folder: Path) -> Staged:
        """Return the staged rows of `table` (one of ONCE) that the lake does not have. Call it under its lock."""
        files = self.lake.committed_files(table)
        stored = f"{ONCE[table]} IN (SELECT {ONCE[table]} FROM {parquet_rows(files)})" if files else "false"
        return rewritten(staged, f"({stored}) IS NOT TRUE", folder / "once" / f"{table}.parquet")

    def _with_superseded(self, batch: UnitBatch, folder: Path) -> UnitBatch:
        """Add the traces that this batch supersedes to its rejects. Call it under the lake's lock."""
        if MARK not in batch.keys:
            return batch
        own = f"SELECT * FROM {parquet_rows(batch.files[MARK].path)}"
        with database.connect() as con:
            reasons = superseded_by_batch(con, self.lake, own, batch.batch.batch_id)
        return with_rejects(batch, reasons, folder / "superseded")

    def _new_rejects(self, batch: UnitBatch, folder: Path) -> Staged | None:
        """Return the rejected files that the lake does not have with the same reason (`known_rejects`).

        Call it under the lake's lock.
        """
        if REJECTS not in batch.files:
            return None
        with database.connect() as con:
            own = f"SELECT path, reason, seen_at FROM {parquet_rows(batch.files[REJECTS].path)}"
            stage_known_rejects(con, self.lake, own)
            known_rejects = con.execute("FROM _known_rejects").fetchall()
        listed = ", ".join(f"({quoted(path)}, {quoted(reason)})" for path, reason in known_rejects)
        new = rewritten(
            batch.files[REJECTS], f"(path, reason) NOT IN ({listed})" if listed else "true", folder / "rejects"
        )
        return new if new.n_rows else None

    def set_user_tables(
        self, prices: Path | None = None, roles: Path | None = None, formulas: Path | None = None
    ) -> None:
        """See Store. The files become prices.csv, roles.csv and op_formulas.csv of the lake."""
        read_files(prices, roles, formulas)
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

    def catalog(self) -> Catalog:
        """See Store."""
        return self.lake.catalog()

    def connect(
        self, settings: Mapping[str, str] | None = None, *, locked: bool = True, tables: Iterable[str] = ()
    ) -> duckdb.DuckDBPyConnection:
        """See Store. The analysts' file is published first if necessary."""
        return connect(self.lake, tables, settings, locked=locked)

    def analyst(self, tables: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
        """See Store. The analysts' file is published first if necessary."""
        return analyst(self.lake, tables)

    def look(self, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """See Store."""
        return self.lake.connect(tables)

    @contextmanager
    def rows(self) -> Iterator[CommittedRows]:
        """See Store."""
        with database.scratch() as con:
            yield RowsOfFolder(con, self.lake)

    def asked(self, tables: Iterable[str], of: str = "") -> TablesOfLake:
        """See Store."""
        return requested_tables(self.lake, tables, of)

    def outdated(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
        """See Store. Outdated tables are computed before an answer, or reported by `asked`."""
        return []

    def caveats(self, table: str) -> list[str]:
        """See Store."""
        return failures_of(self.lake, table) if self.lake.root.is_dir() else []

    def left_out(self, tables: Iterable[str]) -> list[LeftOut]:
        """See Store. Raise BrokenFiles for a lake that has lost its marker files."""
        return left_out_of(self.lake, tables)

    def shows_all(self) -> bool:
        """See Store."""
        return published_whole_and_now(self.lake)

    def find_trace(self, beginning: str) -> str:
        """See Store."""
        return find_trace(self.lake, beginning)[0]

    def show_trace(self, con: duckdb.DuckDBPyConnection, beginning: str, tables: Iterable[str] = ()) -> str:
        """See Store. Raise BrokenFiles."""
        trace_id, batch = find_trace(self.lake, beginning)
        show_trace(con, self.lake, trace_id, batch, tables)
        return trace_id

    def capture_contents(self, force: bool = False) -> dict[str, str | None]:
        """See Store. Outdated tables are computed one by one (`stale_captures`)."""
        known = {name: row for name, row in known_captures(self.lake).items() if not row.is_gone}
        # None for a digest, so that a capture with complete traces again is computed although it has the same traces.
        return {name: None if self.lake.is_digest(row.batch) else row.content for name, row in known.items()}

    def stale_batches(self, tables: Sequence[str], force: bool = False) -> list[StaleBatch]:
        """See Store."""
        if not tables:
            return []
        lake = self.lake
        whole = [batch for batch in lake.batches() if not lake.is_digest(batch)]
        stale = whole if force else stale_batches(lake, lake.catalog(), tables, whole)
        files = {batch: table_file(lake.root, "events", batch) for batch in stale}
        return [
            StaleBatch(batch, (file.stat().st_size if file.exists() else 0) * _BYTES_PER_BYTE)
            for batch, file in files.items()
        ]

    def stale_captures(self, tables: Sequence[str], force: bool = False) -> list[list[str]]:
        """See Store."""
        by_batch: dict[Batch, list[str]] = {}
        for name, row in known_captures(self.lake).items() if tables else ():
            if not row.is_gone and not self.lake.is_digest(row.batch):
                by_batch.setdefault(row.batch, []).append(name)
        stale = sorted(by_batch) if force else stale_batches(self.lake, self.lake.catalog(), tables, sorted(by_batch))
        return [by_batch[batch] for batch in stale]

    def recompute(
        self,
        batches: Iterable[Batch],
        tables: Sequence[str],
        force: bool,
        private_lake: Callable[[], AbstractContextManager[Lake]],
    ) -> int:
        """See Store. Compute in this lake, and do not publish."""
        return len(materialize(self.lake, tables, batches, force, and_publish=False))

    def status(self, inbox: Path | None, limits: Limits) -> Status:
        """See Store."""
        from pipelines.lake.status import status

        return status(self.lake, inbox, limits)

    def check(
        self, repair: bool = False, rebuild: bool = False, on_file: Callable[[str], Any] = lambda _: None
    ) -> Checked:
        """See Store."""
        from pipelines.lake.commit.catalog_file import rebuild as make_catalog_again
        from pipelines.runs.check import check

        self.need_folder()
        if rebuild:
            make_catalog_again(self.lake.root)
        return check(self.lake, repair, on_file)

    def forget(
        self, beginning: str, for_good: bool = False, on_step: Callable[[str], Any] = lambda _: None
    ) -> Forgotten:
        """See Store. Recompute the trace's captures. Raise BrokenFiles."""
        from pipelines.runs.forget import forget

        self.need_folder()
        return forget(self.lake, beginning, for_good, on_step)

    def has_captures_to_update(self) -> bool:
        """See Store."""
        return False

    def need_folder(self) -> None:
        """See Store."""
        if not self.lake.root.is_dir():
            raise StoreError(f"there is no lake in {self._named}", "Name its folder with --lake or TRACELAKE_LAKE.")

    def expire(
        self,
        keep_days: int,
        grace: timedelta = GRACE,
        dry_run: bool = False,
        now: datetime | None = None,
        *,
        to_digests: bool = False,
        on_step: Callable[[str], Any] = lambda _: None,
    ) -> list[Expired]:
        """See Store. Raise the errors of reduce_old and retire."""
        if to_digests:
            from pipelines.runs.digest import reduce_old

            batches = reduce_old(self.lake, keep_days, grace, dry_run, now, on_step)
        else:
            batches = retire(self.lake, keep_days, grace, dry_run, now)
        return [Expired(**asdict(batch)) for batch in batches]

    def compact(self, dry_run: bool = False, grace: timedelta = GRACE) -> list[Compacted]:
        """See Store. Merge each past day separately."""
        compaction = compact(self.lake, grace=grace, dry_run=dry_run)
        return [Compacted(merge.day, merge.n_files, merge.n_files_after) for merge in compaction.merges]

    def sweep(self) -> list[Any]:
        """See Store."""
        return self.lake.sweep()
