"""DuckLake as a store, with Parquet files in a bucket or folder and a catalog in Postgres, SQLite or a DuckDB file."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.fleet.captures.grouping import Role
from pipelines.lake.lake import Lake
from pipelines.lake.names import CAPTURE_MARK, KEYS, MARK, REJECTS, Batch
from pipelines.lake.publish.user_formulas import Formula
from pipelines.lake.read.known_rejects import known_rejects
from pipelines.lake.read.sandbox import CLOSED
from pipelines.lake.read.superseded_traces import superseded_reasons
from pipelines.lake.read.views import PARTED
from pipelines.models.sqltext import parquet_rows, quoted, row
from pipelines.runs.check import Checked
from pipelines.runs.forget import Forgotten
from pipelines.runs.store.committed_rows import RowsOfDuckLake
from pipelines.runs.store.ducklake import upkeep, user_tables, versions
from pipelines.runs.store.ducklake.attach import LAKE, data_of, store_errors
from pipelines.runs.store.ducklake.batch_files import add_files, all_or_nothing, in_types, new_files
from pipelines.runs.store.ducklake.connection import TRIES, DuckLake
from pipelines.runs.store.ducklake.copied_traces import copy_trace, find_trace
from pipelines.runs.store.ducklake.file_check import REMEDY, check
from pipelines.runs.store.ducklake.locks import COMMIT, locked
from pipelines.runs.store.ducklake.objects import put_files
from pipelines.runs.store.ducklake.outdated_tables import outdated
from pipelines.runs.store.ducklake.reader_views import create_views, lock_to
from pipelines.runs.store.ducklake.recompute import recompute, stale_batches
from pipelines.runs.store.ducklake.schema import (
    KEYS_TABLE,
    Columns,
    add_columns,
    casts,
    columns_of_file,
    create_own,
    has_own,
    lake_columns,
)
from pipelines.runs.store.interface import (
    GRACE,
    Committed,
    CommittedRows,
    Compacted,
    Expired,
    StaleBatch,
    Store,
    StoreError,
)
from pipelines.runs.store.unit_batches import (
    ONCE,
    UnitBatch,
    already,
    hiding_batch,
    renamed,
    unit_batches,
    with_rejects,
)

if TYPE_CHECKING:
    from pipelines.lake.status import Limits, Status

_IS_PARTIAL = f"(status = 'partial' OR format = '{PARTED}')"


@dataclass(frozen=True)
class _Seen:
    """The part of a unit that the store already has, and the columns whose type differs (`cast`).

    `keys`: for each batch, the keys that the store has. `hiding`: for each batch, the id of the newest stored batch
    that would hide its rows, or "". `once`: values of the columns of ONCE. `superseded`: for each batch, path and
    reason of the traces that are superseded after its commit and not in `rejects` yet.
    """

    keys: list[dict[str, set[str]]]
    hiding: list[str]
    rejects: set[tuple[str, str]]
    once: dict[str, set[str]]
    superseded: list[list[tuple[str, str]]]
    cast: dict[str, Columns]


@dataclass
class _Plan:
    """The part of a unit to commit, which depends on the store's state `seen`."""

    seen: _Seen
    batches: list[UnitBatch]
    put: list[tuple[str, str]] = field(default_factory=list)  # (table, file at the data path)


class DuckLakeStore(DuckLake, Store):
    """A Store in a DuckLake. A unit is committed in one transaction of the catalog, after its files are uploaded."""

    def known(self, trace_ids: Iterable[str]) -> set[str]:
        """See Store."""
        with self.writer() as con:
            return _known(con, MARK, trace_ids)

    def commit(self, unit: Lake) -> Committed:
        """See Store. All batches of the unit are committed in one transaction."""
        batches = unit_batches(unit)
        with tempfile.TemporaryDirectory(prefix="tracelake-unit-") as folder, self.writer() as con:
            types = {table: columns for batch in batches for table, columns in _types(con, batch).items()}
            for number in range(TRIES):
                plan = self._planned(con, batches, types, Path(folder) / str(number))
                if not plan.batches:
                    return _outcome(plan)
                self._upload(plan)
                with locked(con, self.parsed, COMMIT), store_errors(self.parsed):
                    if self._write(con, batches, types, plan):
                        return _outcome(plan)
        raise self.conflict()

    def _planned(
        self, con: duckdb.DuckDBPyConnection, batches: list[UnitBatch], types: dict[str, Columns], folder: Path
    ) -> _Plan:
        existing = _look(con, batches, types)
        planned = []
        seen = zip(batches, existing.keys, existing.hiding, existing.superseded, strict=True)
        for batch, known_keys, hiding, superseded in seen:
            batch_folder = folder / batch.batch.batch_id
            new_batch = batch.without(known_keys, batch_folder)
            if hiding:
                new_batch = renamed(new_batch, Batch(hiding).next, batch_folder / "renamed")
            new_batch = with_rejects(new_batch, superseded, batch_folder / "superseded")
            types.update({table: kinds for table, kinds in _types(con, new_batch).items() if table not in types})
            new_batch = in_types(new_batch, existing.cast, types, batch_folder / "cast")
            planned.append(
                replace(new_batch, files=new_files(con, new_batch, existing.rejects, existing.once, batch_folder))
            )
        return _Plan(existing, [batch for batch in planned if batch.keys or batch.files])

    def _upload(self, plan: _Plan) -> None:
        run = secrets.token_hex(4)  # so that two writers of the same unit do not overwrite each other's files
        files = {
            f"main/{table}/{batch.batch.batch_id}-{run}.parquet": (table, staged.path)
            for batch in plan.batches
            for table, staged in batch.files.items()
            if staged.n_rows
        }
        put_files(self.parsed, {name: path for name, (_, path) in files.items()})
        plan.put = [(table, f"{self.parsed.data}/{name}") for name, (table, _) in files.items()]

    def _write(
        self, con: duckdb.DuckDBPyConnection, batches: list[UnitBatch], types: dict[str, Columns], plan: _Plan
    ) -> bool:
        """Commit under the lock. If the store's state differs from the plan's state, write no rows and return False."""
        create_own(con)
        versions.create(con)

        def write() -> bool:
            if _look(con, batches, types) != plan.seen:
                return False
            tables = {table for batch in plan.batches for table in batch.files}
            add_columns(con, lake_columns(con), {table: types[table] for table in sorted(tables)})
            add_files(con, plan.put)
            for batch in plan.batches:
                _note(con, batch)
            return True

        return all_or_nothing(con, write)

    def set_user_tables(
        self, prices: Path | None = None, roles: Path | None = None, formulas: Path | None = None
    ) -> None:
        """See Store. The rows become tables of the store, for all its users."""
        rows_by_table = user_tables.read_files(prices, roles, formulas)
        with self.writer() as con, locked(con, self.parsed, COMMIT), store_errors(self.parsed):
            create_own(con)
            user_tables.create(con)
            if not any(user_tables.put(con, rows_by_table) for _ in range(TRIES)):
                raise self.conflict()

    def roles(self) -> Sequence[Role]:
        """See Store."""
        with self.reader() as con:
            return user_tables.roles_of(con)

    def formulas(self) -> Sequence[Formula]:
        """See Store."""
        with self.reader() as con:
            return user_tables.formulas_of(con)

    def connect(
        self, settings: Mapping[str, str] | None = None, *, locked: bool = True, tables: Iterable[str] = ()
    ) -> duckdb.DuckDBPyConnection:
        """See Store. Each query reads one state of the store. In a transaction (`con.begin()`), all queries do."""
        # Without allow_persistent_secrets, DuckDB cannot attach a catalog in Postgres. These secrets are temporary.
        config = {name: value for name, value in CLOSED.items() if name != "allow_persistent_secrets"} if locked else {}
        con = self.reader(config, settings)
        try:
            create_views(con, user_tables.catalog_of(con))  # op_kinds and op_patterns show the store's own formulas
            if locked:
                lock_to(con, data_of(con))
            return con
        except BaseException:
            con.close()
            raise

    @contextmanager
    def rows(self) -> Iterator[CommittedRows]:
        """See Store."""
        with self.reader() as con:
            yield RowsOfDuckLake(con, self.address)

    def outdated(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
        """See Store."""
        return outdated(con, tables)

    def find_trace(self, beginning: str) -> str:
        """See Store."""
        with self.analyst() as con:
            return find_trace(con, beginning, self.address)

    def show_trace(self, con: duckdb.DuckDBPyConnection, beginning: str, tables: Iterable[str] = ()) -> str:
        """See Store. The rows are copied. Schema `stored` has no tables."""
        with self.analyst() as source:
            return copy_trace(source, con, beginning, self.address)

    def capture_contents(self, force: bool = False) -> dict[str, str | None]:
        """See Store. A capture is recomputed if one of its tables is from another version of its model."""
        with self.analyst() as con:
            if CAPTURE_MARK not in lake_columns(con):
                return {}
            rows = con.execute(f"SELECT capture_id, content, batch_id FROM {CAPTURE_MARK}").fetchall()
            catalog, versions_by_batch = user_tables.catalog_of(con), versions.read(con)
        stale = {
            batch
            for *_, batch in rows
            if versions.stale_tables(catalog, catalog.of_captures, versions_by_batch.get(batch, {}))
        }
        return {name: None if force or batch in stale else content for name, content, batch in rows}

    def stale_batches(self, tables: Sequence[str], force: bool = False) -> list[StaleBatch]:
        """See Store."""
        return stale_batches(self, tables, force)

    def recompute(
        self,
        batches: Iterable[Batch],
        tables: Sequence[str],
        force: bool,
        private_lake: Callable[[], AbstractContextManager[Lake]],
    ) -> int:
        """See Store. Each batch is replaced in one transaction."""
        n_files = 0
        for batch in batches:
            with private_lake() as lake:
                n_files += len(recompute(self, lake, batch, tables, force))
        return n_files

    def status(self, inbox: Path | None, limits: Limits) -> Status:
        """See Store. A DuckLake has no disk, no Dagster runs, and no analysts' file."""
        from pipelines.lake.status import status_of_store

        if inbox:
            raise StoreError(
                "--inbox is for the folder of a lake: a DuckLake has no list of the files it has read", "Omit it."
            )
        with self.analyst() as con:
            # Do not use the bookkeeping, which keeps the keys of removed traces.
            marks = [f"SELECT batch_id FROM {LAKE}.main.{mark}" for mark in lake_columns(con) if mark in KEYS]
            batches = con.execute(" UNION ".join(marks)).fetchall() if marks else []
            return status_of_store(con, self.address, [batch for (batch,) in batches], limits)

    def check(
        self, repair: bool = False, rebuild: bool = False, on_file: Callable[[str], Any] = lambda _: None
    ) -> Checked:
        """See Store. Compare sizes and row counts with the catalog, because there are no checksums."""
        if repair or rebuild:
            raise StoreError(
                "--repair and --rebuild are for a lake in a folder: a DuckLake's catalog is its database", REMEDY
            )
        return check(self, on_file)

    def forget(
        self, beginning: str, for_good: bool = False, on_step: Callable[[str], Any] = lambda _: None
    ) -> Forgotten:
        """See Store."""
        return upkeep.forget(self, beginning, for_good)

    def need_folder(self) -> None:
        """See Store. An opened DuckLake always exists."""

    def has_captures_to_update(self) -> bool:
        """See Store."""
        return upkeep.has_captures(self)

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
        """See Store. A DuckLake has no digests."""
        if to_digests:
            raise StoreError(
                f"{self.address}: digests are kept in the folder of a lake, not in a DuckLake",
                "To remove old traces: tracelake retention --keep-days DAYS",
            )
        with self.writer() as con:
            return upkeep.expire(con, self.parsed, keep_days, grace, dry_run, now)

    def compact(self, dry_run: bool = False, grace: timedelta = GRACE) -> list[Compacted]:
        """See Store. Merge files regardless of their day."""
        with self.writer() as con:
            return upkeep.compact(con, self.parsed, dry_run, grace)

    def sweep(self, older_than: timedelta = GRACE) -> list[Any]:
        """See Store. `older_than`: the age from which a file counts as left behind."""
        with self.writer() as con:
            return upkeep.sweep(con, older_than)


def _known(con: duckdb.DuckDBPyConnection, mark: str, keys: Iterable[str]) -> set[str]:
    requested = sorted(set(keys))
    if not requested or not has_own(con):
        return set()
    query = f"SELECT DISTINCT key FROM {KEYS_TABLE} WHERE mark = {quoted(mark)} AND key IN {row(requested)}"
    return {key for (key,) in con.execute(query).fetchall()}


def _look(con: duckdb.DuckDBPyConnection, batches: list[UnitBatch], types: dict[str, Columns]) -> _Seen:
    columns_by_table = lake_columns(con)

    def known(mark: str, keys: Iterable[str]) -> set[str]:
        return _known(con, mark, keys)

    def rows_of(mark: str, keys: Iterable[str]) -> list[dict[str, Any]]:
        if mark not in columns_by_table:
            return []
        query = f"FROM {LAKE}.{mark} WHERE {KEYS[mark]} IN {row(sorted(keys))} ORDER BY batch_id"
        return database.rows_of(con, query)

    def ids_of(mark: str, keys: Iterable[str]) -> list[str]:
        query = f"SELECT batch_id FROM {KEYS_TABLE} WHERE mark = {quoted(mark)} AND key IN {row(sorted(keys))}"
        return [name for (name,) in con.execute(query).fetchall()] if has_own(con) else []

    keys = [already(batch, known, rows_of, _has(con, batch)) for batch in batches]
    cast = {
        table: converted
        for table, file_columns in types.items()
        if (converted := casts(columns_by_table.get(table, {}), file_columns))
    }
    hiding = [
        hiding_batch(b.batch, b.new_keys(known_keys), ids_of) for b, known_keys in zip(batches, keys, strict=True)
    ]
    rejects = _known_rejects(con, batches, columns_by_table) if REJECTS in columns_by_table else set()
    once = {table: _known_values(con, batches, table) for table in ONCE if table in columns_by_table}
    superseded = [
        _superseded(con, batch, known_keys, columns_by_table) for batch, known_keys in zip(batches, keys, strict=True)
    ]
    return _Seen(keys, hiding, rejects, once, superseded, cast)


def _known_rejects(
    con: duckdb.DuckDBPyConnection, batches: list[UnitBatch], columns_by_table: dict[str, Columns]
) -> set[tuple[str, str]]:
    files = [batch.files[REJECTS].path for batch in batches if REJECTS in batch.files]
    if not files:
        return set()
    unit_rows = f"SELECT path, reason, seen_at FROM {parquet_rows(files)}"
    traces = f"SELECT * FROM {LAKE}.{MARK}" if MARK in columns_by_table else ""
    return set(con.execute(known_rejects(unit_rows, f"SELECT * FROM {LAKE}.{REJECTS}", traces)).fetchall())


def _superseded(
    con: duckdb.DuckDBPyConnection,
    batch: UnitBatch,
    known_keys: dict[str, set[str]],
    columns_by_table: dict[str, Columns],
) -> list[tuple[str, str]]:
    """Return path and reason of the traces superseded with this batch, unless the store's `rejects` has them."""
    new_traces = batch.new_keys(known_keys).get(MARK)
    if not new_traces:
        return []
    own = f"SELECT * FROM {parquet_rows(batch.files[MARK].path)} WHERE trace_id IN {row(sorted(new_traces))}"
    has_partial = f"SELECT count(*) > 0 FROM ({own}) WHERE {_IS_PARTIAL}"
    if has_own(con):
        has_partial += f" UNION ALL SELECT count(*) > 0 FROM {KEYS_TABLE} WHERE is_partial"
    if not any(value for (value,) in con.execute(has_partial).fetchall()):
        return []  # return early, so that most commits do not read the store's traces
    stored = f"SELECT * FROM {LAKE}.{MARK}" if MARK in columns_by_table else ""
    reasons = superseded_reasons(con, own, stored, batch.batch.batch_id)
    if not reasons or REJECTS not in columns_by_table:
        return reasons
    paths = row(sorted({path for path, _ in reasons}))
    known = con.execute(f"SELECT path, reason FROM {LAKE}.{REJECTS} WHERE path IN {paths}").fetchall()
    return [reason for reason in reasons if reason not in set(known)]


def _known_values(con: duckdb.DuckDBPyConnection, batches: list[UnitBatch], table: str) -> set[str]:
    files = [batch.files[table].path for batch in batches if table in batch.files]
    if not files:
        return set()
    query = f"SELECT DISTINCT {ONCE[table]} FROM {LAKE}.{table} SEMI JOIN {parquet_rows(files)} USING ({ONCE[table]})"
    return {value for (value,) in con.execute(query).fetchall()}


def _has(con: duckdb.DuckDBPyConnection, batch: UnitBatch) -> bool:
    if not has_own(con):
        return False
    query = f"SELECT count(*) FROM {KEYS_TABLE} WHERE batch_id = {quoted(batch.batch.batch_id)}"
    return bool(con.execute(query).fetchall()[0][0])


def _types(con: duckdb.DuckDBPyConnection, batch: UnitBatch) -> dict[str, Columns]:
    return {table: columns_of_file(con, staged.path) for table, staged in batch.files.items()}


def _note(con: duckdb.DuckDBPyConnection, batch: UnitBatch) -> None:
    """Insert the keys, failures and versions of a batch into the store's bookkeeping."""
    name = quoted(batch.batch.batch_id)
    for mark in batch.keys:
        partial = _IS_PARTIAL if mark == MARK else "false"
        source = parquet_rows(batch.files[mark].path)
        con.execute(f"INSERT INTO {KEYS_TABLE} SELECT {quoted(mark)}, {KEYS[mark]}, {name}, {partial} FROM {source}")
    versions.note_failures(con, batch.batch, batch.files)
    versions.note(con, batch.batch, {table: staged.version for table, staged in batch.files.items()})


def _outcome(plan: _Plan) -> Committed:
    keys: dict[str, list[str]] = {}
    known_keys: dict[str, list[str]] = {}
    for batch in plan.batches:
        for mark, paths_by_key in batch.keys.items():
            keys.setdefault(mark, []).extend(sorted(paths_by_key))
    for known in plan.seen.keys:
        for mark, names in known.items():
            known_keys.setdefault(mark, []).extend(sorted(names))
    return Committed(
        {m: tuple(k) for m, k in keys.items()}, {m: tuple(k) for m, k in known_keys.items() if k}, len(plan.put)
    )
