"""The interface of all stores. A worker computes in a private folder lake (a unit), and commits it to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.fleet.captures.grouping import Role
from pipelines.lake.commit.model_failures import LeftOut, caveats, left_out
from pipelines.lake.lake import Lake
from pipelines.lake.names import MARK, Batch
from pipelines.lake.publish.user_formulas import Formula, catalog_with
from pipelines.models.catalog import Catalog
from pipelines.runs.store.requested_tables import CommittedTables, RequestedTables

if TYPE_CHECKING:
    from pipelines.lake.status import Limits, Status
    from pipelines.runs.check import Checked
    from pipelines.runs.forget import Forgotten

GRACE = timedelta(days=1)
BYTES_PER_EVENT = 250
"""The estimated JSON bytes per event, so that units of captures and batches are as large as units of files."""


class StoreError(TracelakeError):
    """A store that cannot be opened, read or written. The message has the reason and the remedy, but no passwords."""


@dataclass(frozen=True)
class Committed:
    """The outcome of a unit's commit, by marker table (such as `traces`, `captures` and `schedule_runs`).

    `keys`: the newly committed keys. `known_keys`: the keys that the store already had, or that were removed from it.
    Their rows were not committed.
    """

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    n_files: int = 0

    @property
    def traces(self) -> tuple[str, ...]:
        """Return the newly committed traces."""
        return self.keys.get(MARK, ())

    @property
    def known(self) -> tuple[str, ...]:
        """Return the traces that were not committed."""
        return self.known_keys.get(MARK, ())


@dataclass(frozen=True)
class Expired:
    """The traces of a batch that are being removed. `state`: due (in a dry run), hidden, removed, or as in reduce_old.

    `n_files`, `n_bytes`: number and size of the batch's files in a folder lake before the removal, None for other
    stores.
    """

    batch_id: str
    day: str
    state: str
    traces: tuple[str, ...]
    n_files: int | None = None
    n_bytes: int | None = None


@dataclass(frozen=True)
class Compacted:
    """The number of Parquet files of a table (in a folder lake, of a day) before and after compaction.

    In a dry run, `files_after` is a lower bound, or None if unknown.
    """

    what: str
    files_before: int
    files_after: int | None


@dataclass(frozen=True)
class StaleBatch:
    """A batch with missing or outdated tables. `size`: the size of its traces in estimated JSON bytes."""

    batch: Batch
    size: int


@dataclass(frozen=True)
class BatchSpan:
    """The batches of some days (YYYY-MM-DD), and all batches from `since` on, which is a batch id or its prefix."""

    days: frozenset[str]
    since: str

    def holds(self, batch: Batch) -> bool:
        """Return whether the span contains the batch."""
        return batch.day in self.days or batch.batch_id >= self.since


class Rows(NamedTuple):
    """The rows of a table. `sql`: the SQL that follows FROM. `n_files`: the number of their files, None if unknown."""

    sql: str
    n_files: int | None


class CommittedRows(Protocol):
    """The committed rows of single tables, for checks."""

    con: duckdb.DuckDBPyConnection
    address: str
    until: float | str
    """The time or batch of the last commit so far. Pass it as `since` to a later `of` to skip the rows until now."""

    def of(self, table: str, span: BatchSpan, since: float | str = "") -> Rows | None:
        """Return the rows of a table in these batches that were committed after `since`, or None without rows."""
        ...


class Store(Protocol):
    """A store of traces that several processes read and write concurrently. All methods raise StoreError.

    The method bodies are for stores to which units of work are committed. A folder lake overrides them.
    """

    @property
    def lake(self) -> Lake | None:
        """Return the folder lake in which workers compute in place, or None if the store accepts only units of work."""
        return None

    @property
    def address(self) -> str:
        """Return the address that `open_store` accepts for this store, without secrets."""
        ...

    @property
    def exists(self) -> bool:
        """Return whether the store has traces. For a DuckLake, return True, because only connecting can show this."""
        return True

    def known(self, trace_ids: Iterable[str]) -> set[str]:
        """Return the traces that need not be ingested, because the store has them or they were removed from it."""
        ...

    def accounted_for(self, trace_ids: Iterable[str]) -> set[str]:
        """Return `known`, without traces whose files are missing or damaged. Such traces can be ingested again."""
        return self.known(requested) if (requested := set(trace_ids)) else set()

    def commit(self, unit: Lake) -> Committed:
        """Commit all tables of a private lake to the store. Traces become visible with all their tables, or not at all.

        Keys that the store already has are skipped, so committing or computing a unit twice does no harm. A killed
        commit leaves no visible rows. The private lake is not changed. It must have no writers during the commit.
        """
        ...

    def set_user_tables(
        self, prices: Path | None = None, roles: Path | None = None, formulas: Path | None = None
    ) -> None:
        """Replace the prices of jobs, the roles of ranks, and the formulas of operators by the rows of CSV files.

        The files have the format of prices.csv, roles.csv and op_formulas.csv of a folder lake. A file with only a
        header removes all rows. Raise OSError for a missing file, and CatalogError or RolesError with file and line for
        an unusable file. In both cases, replace no table.
        """

    def roles(self) -> Sequence[Role]:
        """Return the stored roles of ranks. Raise RolesError for a roles.csv that cannot be read."""
        ...

    def formulas(self) -> Sequence[Formula]:
        """Return the user's operator formulas. Raise CatalogError for an unusable op_formulas.csv."""
        ...

    def causes(self) -> bytes:
        """Return the content of causes.csv, or b"" if it does not exist, as in a DuckLake."""
        return b""

    def catalog(self) -> Catalog:
        """Return the models for this store, with the user's formulas. Raise CatalogError as `formulas` does."""
        return catalog_with(self.formulas())

    def connect(
        self, settings: Mapping[str, str] | None = None, *, locked: bool = True, tables: Iterable[str] = ()
    ) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection with every table, as in the folder lake's analysts' file.

        `locked`: whether queries may read only these tables. `settings`: settings of DuckDB, such as memory_limit.
        `tables`: tables that were brought up to date and must be shown in that state. The caller closes the connection.
        """
        ...

    def analyst(self, tables: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
        """Return a connection with every table for trusted queries, like `connect` without a lock and settings."""
        return self.connect(locked=False, tables=tables)

    def look(self, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """Return a connection with the current state of these tables, without publishing a folder lake."""
        return self.analyst(tables)

    def rows(self) -> AbstractContextManager[CommittedRows]:
        """Open the committed rows of single tables, including rows that views hide."""
        ...

    def asked(self, tables: Iterable[str], of: str = "") -> RequestedTables:
        """Return the tables that must be computed before a query of these tables is answered.

        `of`: a prefix of the ids of traces or captures to which the query is limited. Raise NoTraces, BrokenFiles or
        CatalogError for a folder lake that cannot answer.
        """
        return CommittedTables(list(tables))

    def outdated(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
        """Return a sentence for each of these tables whose rows are outdated. `con`: from `connect` or `analyst`."""
        ...

    def caveats(self, table: str) -> list[str]:
        """Return sentences about the traces missing from a table because a model failed, or [] without a lake."""
        with self.analyst() as con:
            return caveats(con, [table])

    def left_out(self, tables: Iterable[str]) -> list[LeftOut]:
        """Return the traces missing from these tables because a model failed on them."""
        with self.analyst() as con:
            return left_out(con, tables)

    def shows_all(self) -> bool:
        """Return whether analysts see all committed rows, so that publishing is unnecessary."""
        return True

    def find_trace(self, beginning: str) -> str:
        """Return the id of the trace with this id prefix or file name. Raise NoSuchTrace."""
        ...

    def show_trace(self, con: duckdb.DuckDBPyConnection, beginning: str, tables: Iterable[str] = ()) -> str:
        """Show `traces`, `events` and `findings` of one trace in `con`, and return its id. Raise NoSuchTrace.

        Schema `stored` has the tables of `tables` that are stored and up to date.
        """
        ...

    def capture_contents(self, force: bool = False) -> dict[str, str | None]:
        """Return the content from which each capture was computed, or None if all its tables must be recomputed.

        `force`: recompute all captures. In a folder lake, `stale_captures` lists the captures to recompute instead.
        """
        ...

    def stale_batches(self, tables: Sequence[str], force: bool = False) -> list[StaleBatch]:
        """Return the batches in which one of these tables is missing or outdated. With `force`, return all batches."""
        ...

    def stale_captures(self, tables: Sequence[str], force: bool = False) -> list[list[str]]:
        """Return the ids of the captures in each batch in which one of these tables is missing or outdated.

        With `force`, return all captures. Return [] if all tables of a capture are computed together.
        """
        return []

    def recompute(
        self,
        batches: Iterable[Batch],
        tables: Sequence[str],
        force: bool,
        private_lake: Callable[[], AbstractContextManager[Lake]],
    ) -> int:
        """Compute the outdated tables of these batches, or all of `tables` with `force`. Return the number of files.

        `private_lake` yields an empty lake, for stores in which tables cannot be computed in place.
        """
        ...

    def status(self, inbox: Path | None, limits: Limits) -> Status:
        """Return the state of the store, and of its watched folder unless `inbox` is None, and the exceeded limits."""
        ...

    def check(
        self, repair: bool = False, rebuild: bool = False, on_file: Callable[[str], Any] = lambda _: None
    ) -> Checked:
        """Read every file. `repair`: recompute or quarantine damaged files. `rebuild`: first rebuild the catalog.

        Raise StoreError for an option that the store does not support.
        """
        ...

    def forget(
        self, beginning: str, for_good: bool = False, on_step: Callable[[str], Any] = lambda _: None
    ) -> Forgotten:
        """Remove the one trace whose id starts with `beginning`. Its content may be ingested again, unless `for_good`.

        Raise NoSuchTrace.
        """
        ...

    def need_folder(self) -> None:
        """Raise StoreError if the folder of the lake does not exist. `open_store` allows such a folder."""
        ...

    def has_captures_to_update(self) -> bool:
        """Return whether tables of captures must be updated after `forget`, because it does not update them."""
        ...

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
        """Remove traces ingested more than `keep_days` days ago, or keep only their digests.

        The traces stay known, so they are not ingested again. Their files are deleted after `grace`. Call
        `on_step(text)` while computing tables of digests. Raise StoreError for a store that does not support digests.
        """
        ...

    def compact(self, dry_run: bool = False, grace: timedelta = GRACE) -> list[Compacted]:
        """Merge small files without changing any answer. A later call deletes the old files after `grace`."""
        ...

    def sweep(self) -> list[Any]:
        """Delete files that killed writers left behind more than a day ago, and return them."""
        ...
