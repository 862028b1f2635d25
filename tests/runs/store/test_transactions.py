"""Failing transactions of a store, and transactions of other writers in between."""

from collections.abc import Iterator

import duckdb
import pytest

from pipelines.lake.names import Batch
from pipelines.runs.store.ducklake import versions
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.batch_files import all_or_nothing
from pipelines.runs.store.ducklake.schema import create_bookkeeping


def test_a_commit_that_fails_is_told_as_it_is() -> None:
    with duckdb.connect() as con, con.cursor() as other:
        con.execute("CREATE TABLE one (key INTEGER PRIMARY KEY)")

        def write() -> bool:
            con.execute("INSERT INTO one VALUES (1)")
            other.execute("INSERT INTO one VALUES (1)")
            return True

        with pytest.raises(duckdb.TransactionException, match="PRIMARY KEY"):
            all_or_nothing(con, write)
        assert con.execute("FROM one").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "says", ["Conflict on tuple deletion!", 'Failed to execute query "COMMIT": database is locked']
)
def test_a_commit_that_another_one_hinders_wrote_nothing(says: str) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE one (key INTEGER)")

        def write() -> bool:
            con.execute("INSERT INTO one VALUES (1)")
            raise duckdb.TransactionException(says)

        assert not all_or_nothing(con, write)
        assert con.execute("FROM one").fetchall() == []


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection to a DuckDB database that stands in for a DuckLake."""
    with duckdb.connect() as con:
        con.execute(f"ATTACH ':memory:' AS {LAKE}")
        create_bookkeeping(con)
        versions.create(con)
        yield con


def batch(number: int) -> Batch:
    return Batch(f"20260101T000000000000-{number:08x}")


def test_versions_can_be_read_while_another_writer_adds_a_kind(con: duckdb.DuckDBPyConnection) -> None:
    class Disturbed:
        """A connection in which another writer commits a batch before every query.

        Each such batch has versions that differ from those of all batches before.
        """

        n = 0

        def execute(self, query: str) -> duckdb.DuckDBPyConnection:
            self.n += 1
            versions.note(con, batch(self.n), {"kernels": f"version {self.n}"})
            return con.execute(query)

    by_batch = versions.read(Disturbed())  # type: ignore[arg-type]
    assert by_batch and all(
        by_batch[f"{batch(n).batch_id}"] == {"kernels": f"version {n}"} for n in range(1, len(by_batch) + 1)
    )


def test_versions_of_some_batches_and_of_copies(con: duckdb.DuckDBPyConnection) -> None:
    versions.note(con, batch(1), {"kernels": "1", "spans": "1"})
    versions.note(con, batch(2), {"kernels": "2", "spans": "1"})
    versions.note(con, batch(2), {"kernels": "1", "spans": "1"})  # another version commits the same batch
    assert versions.read(con, [batch(2).batch_id, "none"]) == {batch(2).batch_id: {"spans": "1"}}
    assert versions.read(con)[batch(1).batch_id] == {"kernels": "1", "spans": "1"}
