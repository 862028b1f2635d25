"""One writer at a time looks up what is known and commits: DuckLake lets two appends of the same trace both succeed."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.local_disk import refuse_network
from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.address import Address
from pipelines.runs.store.interface import StoreError

COMMIT, UPKEEP = 7_021_001, 7_021_002  # numbers of the advisory locks, of each database on its own
_PATIENCE = "10min"


@contextmanager
def locked(con: duckdb.DuckDBPyConnection, address: Address, number: int) -> Iterator[None]:
    """Holds a lock of a DuckLake: an advisory lock in Postgres, flock beside a catalog file. It goes with the process."""
    if address.kind == "postgres":
        with _in_postgres(con, address, number):
            yield
        return
    path = Path(f"{address.catalog}.lock{number % 10}")
    refuse_network(path.parent)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _in_postgres(con: duckdb.DuckDBPyConnection, address: Address, number: int) -> Iterator[None]:
    """The lock lasts as long as a transaction of its own: Postgres ends that when the connection breaks."""
    with database.cursor(con) as own:
        own.execute(f"ATTACH IF NOT EXISTS {quoted(address.catalog)} AS tracelake_locks (TYPE postgres)")
        own.begin()
        try:
            own.execute(f"CALL postgres_execute('tracelake_locks', 'SET LOCAL lock_timeout = ''{_PATIENCE}''')")
            own.execute(f"CALL postgres_execute('tracelake_locks', 'SELECT pg_advisory_xact_lock({number})')")
        except duckdb.Error as error:
            own.rollback()
            if "lock timeout" in str(error):
                raise StoreError(f"{address.text}: another writer has held the lock for {_PATIENCE}") from None
            raise
        try:
            yield
        finally:
            own.rollback()
