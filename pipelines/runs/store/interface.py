"""What every store can do. Work is done in a private folder lake (a unit), which is then committed to a store."""

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
    """A store cannot be opened, read or written; the message says why and what to do. It never contains a password."""


@dataclass(frozen=True)
class Committed:
    """The outcome of a unit, by mark (`traces`, `captures`, `schedule_runs`, …): the keys that were committed now, and
    those that the store had already, or that were removed from it: their rows were left out.
    """

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    n_files: int = 0

    @property
    def traces(self) -> tuple[str, ...]:
        """The traces that were committed now."""
        return self.keys.get(MARK, ())

    @property
    def known(self) -> tuple[str, ...]:
        """The traces that were left out."""
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
    """How many Parquet files a table (of a folder lake: a day) had, and has now.

    In a dry run: would have, at least; None where that is not known.
    """

    what: str
    files_before: int
    files_after: int | None


class Store(Protocol):
    """A store of traces that several processes read and write at once. All methods raise StoreError."""

    @property
    def address(self) -> str:
        """What `open_store` opens this store by, without secrets."""
        ...

    def known(self, trace_ids: Iterable[str]) -> set[str]:
        """Returns those of these traces that need not be ingested: they are in the store, or were removed from it."""
        ...

    def commit(self, unit: Lake) -> Committed:
        """Put all tables of a private lake into the store: traces become visible with all their tables, or not at all.

        What is known already is left out, so a unit may be committed again, or computed and committed twice. A killed
        commit leaves no rows. The private lake stays as it is; it must have no writers meanwhile.
        """
        ...

    def tell(self, prices: Path | None = None, roles: Path | None = None, formulas: Path | None = None) -> None:
        """Replace the prices of jobs, the roles of ranks, the formulas of operators by the rows of CSV files, as prices.csv,
        roles.csv and op_formulas.csv of a folder lake. A file with only a header removes them. Raises OSError for a file that is not there, CatalogError
        or RolesError, naming file and line, for one that cannot be used: nothing is replaced then.
        """
        ...

    def roles(self) -> Sequence[Role]:
        """Returns what is known of the roles of ranks. Raises RolesError for a roles.csv that cannot be read."""
        ...

    def formulas(self) -> Sequence[Formula]:
        """Returns the formulas of operators that were told. Raises CatalogError for an op_formulas.csv that cannot be used."""
        ...

    def causes(self) -> bytes:
        """Returns the content of causes.csv; a DuckLake has none."""
        ...

    def tables(self) -> list[str]:
        """Returns the names of the tables that `connect` shows."""
        ...

    def connect(self, settings: Mapping[str, str] | None = None, *, locked: bool = True) -> duckdb.DuckDBPyConnection:
        """Returns a read-only connection with every table, as in the folder lake's analysts' file.

        `locked`: the query may read nothing else. `settings`: of DuckDB, such as memory_limit. The caller closes it.
        """
        ...

    def expire(
        self, keep_days: int, grace: timedelta = GRACE, dry_run: bool = False, now: datetime | None = None
    ) -> list[Expired]:
        """Remove traces ingested more than `keep_days` days ago; their files go after `grace`. They stay known."""
        ...

    def compact(self, dry_run: bool = False, grace: timedelta = GRACE) -> list[Compacted]:
        """Merge small files; every query answers as before. The old files go after `grace`, by a later call."""
        ...

    def sweep(self, older_than: timedelta = GRACE) -> list[Any]:
        """Delete files that killed writers left behind; returns what was deleted."""
        ...
