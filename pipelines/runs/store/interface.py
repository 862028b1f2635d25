"""The interface of all stores. Work is done in a private folder lake (a unit), which is then committed to a store."""

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
"""Estimated JSON bytes per event, so that units of captures and of batches are as large as those of files."""


class StoreError(TracelakeError):
    """A store that cannot be opened, read or written. The message says why and what to do, without passwords."""


@dataclass(frozen=True)
class Committed:
    """The outcome of a unit's commit, by marker table (`traces`, `captures`, `schedule_runs`, …).

    `keys`: the newly committed keys. `known_keys`: the keys that the store already had, or that were removed from it.
    Their rows were left out.
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
        """Return the traces that were left out."""
        return self.known_keys.get(MARK, ())


@dataclass(frozen=True)
class Expired:
    """Traces of one batch that are being removed. `state`: due (in a dry run), hidden, removed, or reduced to a digest.

    `n_files`, `n_bytes`: of the batch in a folder lake, before the removal. None for other stores.
    """

    batch_id: str
    day: str
    state: str
    traces: tuple[str, ...]
    n_files: int | None = None
    n_bytes: int | None = None


@dataclass(frozen=True)
class Compacted:
    """The number of Parquet files of a table (of a folder lake: of a day) before and after compaction.

    In a dry run, `files_after` is a lower bound, or None if unknown.
    """

    what: str
    files_before: int
    files_after: int | None


@dataclass(frozen=True)
class StaleBatch:
    """A batch with tables that are missing or of another model version. `size`: of its traces, in estimated JSON bytes."""

    batch: Batch
    size: int


@dataclass(frozen=True)
class BatchSpan:
    """The batches of some days (YYYY-MM-DD), and those that began at or after `since`, a batch id or its beginning."""

    days: frozenset[str]
    since: str

    def holds(self, batch: Batch) -> bool:
        """Return whether the batch is one of them."""
        return batch.day in self.days or batch.batch_id >= self.since


class Rows(NamedTuple):
    """Rows of a table: `sql` follows FROM. `n_files`: the number of their files, None if unknown."""

    sql: str
    n_files: int | None


class CommittedRows(Protocol):
    """The committed rows of single tables, for checks."""

    con: duckdb.DuckDBPyConnection
    address: str
    until: float | str
    """Passed as `since` to a later `of`: the rows that were committed until now."""

    def of(self, table: str, span: BatchSpan, since: float | str = "") -> Rows | None:
        """Return the rows of a table in these batches that were committed after `since`, None if there are none."""
        ...


class Store(Protocol):
    """A store of traces that several processes read and write concurrently. All methods raise StoreError.

    Methods with a body are of a store to which units of work are committed. A folder lake has its own.
    """

    @property
    def lake(self) -> Lake | None:
        """Return the folder lake in which work is done in place, or None if only units of work are committed to the store."""
        return None

    @property
    def address(self) -> str:
        """Return the address that `open_store` accepts for this store, without secrets."""
        ...

    @property
    def exists(self) -> bool:
        """Return whether the store has traces. Of a store that must be connected to, the connection reports the opposite."""
        return True

    def known(self, trace_ids: Iterable[str]) -> set[str]:
        """Return those of these traces that need not be ingested: the store has them, or they were removed from it."""
        ...

    def accounted_for(self, trace_ids: Iterable[str]) -> set[str]:
        """Return `known`, without traces whose files are missing or damaged. They can be ingested again."""
        return self.known(requested) if (requested := set(trace_ids)) else set()

    def commit(self, unit: Lake) -> Committed:
        """Commit all tables of a private lake to the store: traces become visible with all their tables, or not at all.

        Keys that the store already has are left out, so a unit may be committed again, or computed and committed twice.
        A killed commit leaves no rows. The private lake is not changed. It must have no writers during the commit.
        """
        ...

    def set_user_tables(
        self, prices: Path | None = None, roles: Path | None = None, formulas: Path | None = None
    ) -> None:
        """Replace the prices of jobs, the roles of ranks, and the formulas of operators by the rows of CSV files.

        The files have the format of prices.csv, roles.csv and op_formulas.csv of a folder lake. A file with only a
        header removes all rows. Raises OSError for a missing file, and CatalogError or RolesError, naming file and
        line, for one that cannot be used. Nothing is replaced then.
        """

    def roles(self) -> Sequence[Role]:
        """Return the stored roles of ranks. Raises RolesError for a roles.csv that cannot be read."""
        ...

    def formulas(self) -> Sequence[Formula]:
        """Return the user's formulas of operators. Raises CatalogError for an op_formulas.csv that cannot be used."""
        ...

    def causes(self) -> bytes:
        """Return the content of causes.csv, b"" if there is none. A DuckLake never has one."""
        return b""

    def catalog(self) -> Catalog:
        """Return the models for this store, with the user's formulas. Raises CatalogError as `formulas` does."""
        return catalog_with(self.formulas())

    def connect(
        self, settings: Mapping[str, str] | None = None, *, locked: bool = True, tables: Iterable[str] = ()
    ) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection with every table, as in the folder lake's analysts' file.

        `locked`: queries may read nothing else. `settings`: settings of DuckDB, such as memory_limit. `tables`: tables
        that were brought up to date and must be shown in that state. The caller closes the connection.
        """
        ...

    def analyst(self, tables: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
        """Return a connection with every table for our own queries, as `connect` without a lock and settings."""
        return self.connect(locked=False, tables=tables)

    def look(self, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """Return a connection with the current state of these tables. A folder lake is not published for that."""
        return self.analyst(tables)

    def rows(self) -> AbstractContextManager[CommittedRows]:
        """Open the committed rows of single tables, without what views hide."""
        ...

    def asked(self, tables: Iterable[str], of: str = "") -> RequestedTables:
        """Return what has to be computed before a query of these tables is answered.

        `of`: a prefix of the ids of traces or captures to which the query is limited. Raises NoTraces, BrokenFiles and
        CatalogError for a folder lake that cannot answer.
        """
        return CommittedTables(list(tables))

    def outdated(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
        """Return a sentence for each of these tables that an answer shows outdated. `con`: from `connect` or `analyst`."""
        ...

    def caveats(self, table: str) -> list[str]:
        """Return sentences about the traces that a table lacks because a model failed on them. Empty if there is no lake."""
        with self.analyst() as con:
            return caveats(con, [table])

    def left_out(self, tables: Iterable[str]) -> list[LeftOut]:
        """Return the traces that these tables lack because a model failed on them."""
        with self.analyst() as con:
            return left_out(con, tables)

    def shows_all(self) -> bool:
        """Return whether everything that was committed is shown to analysts, so that nothing remains to be published."""
        return True

    def find_trace(self, beginning: str) -> str:
        """Return the id of the trace with this id prefix or file name. Raises NoSuchTrace."""
        ...

    def show_trace(self, con: duckdb.DuckDBPyConnection, beginning: str, tables: Iterable[str] = ()) -> str:
        """Show `traces`, `events` and `findings` of one trace in `con`, and return its id. Raises NoSuchTrace.

        Those of `tables` that are stored and up to date are in schema `stored`.
        """
        ...

    def capture_contents(self, force: bool = False) -> dict[str, str | None]:
        """Return the content from which each capture was computed, or None if all its tables must be computed again.

        `force`: also those that are up to date. In a folder lake `stale_captures` lists these instead.
        """
        ...

    def stale_batches(self, tables: Sequence[str], force: bool = False) -> list[StaleBatch]:
        """Return the batches in which one of these tables is missing or outdated. With `force`, all batches."""
        ...

    def stale_captures(self, tables: Sequence[str], force: bool = False) -> list[list[str]]:
        """Return the ids of captures, by batch, to which some of these tables must be added or in which they are outdated.

        With `force`, all captures. Empty if all tables of a capture are computed together.
        """
        return []

    def recompute(
        self,
        batches: Iterable[Batch],
        tables: Sequence[str],
        force: bool,
        private_lake: Callable[[], AbstractContextManager[Lake]],
    ) -> int:
        """Compute those of these tables of the batches that are out of date, or all with `force`. Return the number of files.

        `private_lake` yields an empty lake, for a store in which work cannot be done in place.
        """
        ...

    def status(self, inbox: Path | None, limits: Limits) -> Status:
        """Return the state of the store and, if `inbox` is passed, of its watched folder, with what exceeds the limits."""
        ...

    def check(
        self, repair: bool = False, rebuild: bool = False, on_file: Callable[[str], Any] = lambda _: None
    ) -> Checked:
        """Read every file. `repair`: recompute or remove damaged ones; `rebuild`: first make the catalog again.

        Raises StoreError for what the store cannot do.
        """
        ...

    def forget(
        self, beginning: str, for_good: bool = False, on_step: Callable[[str], Any] = lambda _: None
    ) -> Forgotten:
        """Remove the one trace whose id starts with `beginning`. Its content may be ingested again, unless `for_good`.

        Raises NoSuchTrace.
        """
        ...

    def need_folder(self) -> None:
        """Raise StoreError if the folder of a lake does not exist, which `open_store` allows."""
        ...

    def has_captures_to_update(self) -> bool:
        """Return whether tables of captures must be brought up to date after `forget`, which did not do so."""
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
        """Remove traces ingested more than `keep_days` days ago, or keep only their digests. They stay known.

        Their files go after `grace`. `on_step(text)` is called as tables of digests are computed. Raises StoreError for a
        store that has no digests.
        """
        ...

    def compact(self, dry_run: bool = False, grace: timedelta = GRACE) -> list[Compacted]:
        """Merge small files without changing any answer. A later call deletes the old files after `grace`."""
        ...

    def sweep(self, older_than: timedelta = GRACE) -> list[Any]:
        """Delete files that killed writers left behind, and return them."""
        ...
