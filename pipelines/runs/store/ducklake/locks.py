"""The locks of a DuckLake, so that only one writer at a time looks up known keys and commits.

Without them, two concurrent appends of the same trace would both succeed in DuckLake.
"""

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

COMMIT, UPKEEP = 7_021_001, 7_021_002  # numbers of the advisory locks, which each database has separately
_PATIENCE = "10min"


@contextmanager
def locked(con: duckdb.DuckDBPyConnection, address: Address, number: int) -> Iterator[None]:
    """Hold a lock of a DuckLake, which is an advisory lock in Postgres, or flock next to a catalog file.

    The lock is also released when the process ends.
    """
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
    """Hold an advisory lock in a dedicated transaction, which Postgres ends if the connection breaks."""
    with database.cursor(con) as cursor:
        cursor.execute(f"ATTACH IF NOT EXISTS {quoted(address.catalog)} AS tracelake_locks (TYPE postgres)")
        cursor.begin()
        try:
            cursor.execute(f"CALL postgres_execute('tracelake_locks', 'SET LOCAL lock_timeout = ''{_PATIENCE}''')")
            cursor.execute(f"CALL postgres_execute('tracelake_locks', 'SELECT pg_advisory_xact_lock({number})')")
        except duckdb.Error as error:
            cursor.rollback()
            if "lock timeout" in str(error):
                raise StoreError(f"{address.text}: another writer has held the lock for {_PATIENCE}") from None
            raise
        try:
            yield
        finally:
            cursor.rollback()
