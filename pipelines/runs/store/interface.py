"""The interface of all stores. Work is done in a private folder lake (a unit), which is then committed to a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.fleet.captures.grouping import Role
from pipelines.lake.lake import Lake
from pipelines.lake.names import MARK
from pipelines.lake.publish.user_formulas import Formula

GRACE = timedelta(days=1)


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
    """Traces of one batch that are being removed. `state`: due (in a dry run), hidden or removed."""

    batch_id: str
    day: str
    state: str
    traces: tuple[str, ...]


@dataclass(frozen=True)
class Compacted:
    """The number of Parquet files of a table (of a folder lake: of a day) before and after compaction.

    In a dry run, `files_after` is a lower bound, or None if unknown.
    """

    what: str
    files_before: int
    files_after: int | None


class Store(Protocol):
    """A store of traces that several processes read and write concurrently. All methods raise StoreError."""

    @property
    def address(self) -> str:
        """Return the address that `open_store` accepts for this store, without secrets."""
        ...

    def known(self, trace_ids: Iterable[str]) -> set[str]:
        """Return those of these traces that need not be ingested: the store has them, or they were removed from it."""
        ...

    def commit(self, unit: Lake) -> Committed:
        """Commit all tables of a private lake to the store: traces become visible with all their tables, or not at all.

        Keys that the store already has are left out, so a unit may be committed again, or computed and committed twice.
        A killed commit leaves no rows. The private lake is not changed. It must have no writers during the commit.
        """
        ...

    def tell(self, prices: Path | None = None, roles: Path | None = None, formulas: Path | None = None) -> None:
        """Replace the prices of jobs, the roles of ranks, and the formulas of operators by the rows of CSV files.

        The files have the format of prices.csv, roles.csv and op_formulas.csv of a folder lake. A file with only a
        header removes all rows. Raises OSError for a missing file, and CatalogError or RolesError, naming file and
        line, for one that cannot be used. Nothing is replaced then.
        """
        ...

    def roles(self) -> Sequence[Role]:
        """Return the stored roles of ranks. Raises RolesError for a roles.csv that cannot be read."""
        ...

    def formulas(self) -> Sequence[Formula]:
        """Return the user's formulas of operators. Raises CatalogError for an op_formulas.csv that cannot be used."""
        ...

    def causes(self) -> bytes:
        """Return the content of causes.csv, b"" if there is none. A DuckLake never has one."""
        ...

    def tables(self) -> list[str]:
        """Return the names of the tables that `connect` shows."""
        ...

    def connect(self, settings: Mapping[str, str] | None = None, *, locked: bool = True) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection with every table, as in the folder lake's analysts' file.

        `locked`: queries may read nothing else. `settings`: settings of DuckDB, such as memory_limit. The caller closes
        the connection.
        """
        ...

    def expire(
        self, keep_days: int, grace: timedelta = GRACE, dry_run: bool = False, now: datetime | None = None
    ) -> list[Expired]:
        """Remove traces ingested more than `keep_days` days ago. Their files go after `grace`. They stay known."""
        ...

    def compact(self, dry_run: bool = False, grace: timedelta = GRACE) -> list[Compacted]:
        """Merge small files without changing any answer. A later call deletes the old files after `grace`."""
        ...

    def sweep(self, older_than: timedelta = GRACE) -> list[Any]:
        """Delete files that killed writers left behind, and return them."""
        ...
