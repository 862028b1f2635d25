"""The model versions of the tables of each batch in a DuckLake, which identify outdated tables.

Most batches share all their versions, so a batch has one row, which names a kind. A kind has one row per table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import duckdb

from pipelines.lake.commit.batch_rows import LEFT_OUT, Failure
from pipelines.lake.commit.model_failures import failure_rows
from pipelines.lake.lake import Staged
from pipelines.lake.names import Batch
from pipelines.models.cache import digest_of
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import quoted, row
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.schema import FAILURES, OWN

_BATCHES = f"{LAKE}.{OWN}.batches"
_KINDS = f"{LAKE}.{OWN}.kinds"

Versions = Mapping[str, str]
"""The version of the model of each table."""


def create(con: duckdb.DuckDBPyConnection) -> None:
    """Create the tables of versions if the store does not have them. Call it under the lock."""
    if not _are_there(con):
        con.begin()
        con.execute(f"CREATE TABLE {_BATCHES} (batch_id VARCHAR, kind VARCHAR)")
        con.execute(f"CREATE TABLE {_KINDS} (kind VARCHAR, table_name VARCHAR, version VARCHAR)")
        con.commit()


def _are_there(con: duckdb.DuckDBPyConnection) -> bool:
    query = (
        f"SELECT count(*) FROM duckdb_tables() WHERE database_name = '{LAKE}' AND schema_name = '{OWN}' "
        "AND table_name IN ('batches', 'kinds')"
    )
    return con.execute(query).fetchall()[0][0] == 2


def read(con: duckdb.DuckDBPyConnection, batches: Iterable[str] | None = None) -> dict[str, Versions]:
    """Return the versions of each batch (by default of all).

    A table is omitted if its version is unknown, because an older tracelake without version records committed it. As in
    a folder lake, it is also omitted if a trace is missing from it and the failed model may succeed when rerun.
    """
    if not _are_there(con):
        return {}
    where = "" if batches is None else f" WHERE batch_id IN {row(['', *batches])}"
    rows = con.execute(  # a single query, so that both parts read the same state while other writers add kinds
        f"SELECT kind, NULL, table_name, version FROM {_KINDS} "
        f"UNION ALL SELECT kind, batch_id, NULL, NULL FROM {_BATCHES}{where}"
    ).fetchall()
    kinds: dict[str, dict[str, str]] = {}
    for kind, batch, table, version in rows:
        if batch is None:
            kinds.setdefault(kind, {})[table] = version
    versions_by_batch: dict[str, Versions] = {}
    for kind, batch, *_ in rows:
        if batch is not None:
            # If two versions of tracelake committed copies of a batch, keep only the versions that are equal in both.
            versions_by_batch[batch] = (
                dict(versions_by_batch[batch].items() & kinds[kind].items())
                if batch in versions_by_batch
                else kinds[kind]
            )
    for batch, again in _again(con).items():
        if batch in versions_by_batch:
            versions_by_batch[batch] = {
                table: version for table, version in versions_by_batch[batch].items() if table not in again
            }
    return versions_by_batch


def _again(con: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    """Return, by batch, the tables from which a trace is missing although the failed model may succeed when rerun."""
    query = f"SELECT batch_id, trace_id, table_name, model, reason FROM {FAILURES} WHERE outcome = '{LEFT_OUT}'"
    again: dict[str, set[str]] = {}
    for batch, trace_id, table, model, reason in con.execute(query).fetchall():
        if Failure(trace_id, model, reason).is_no_fault_of_data:
            again.setdefault(batch, set()).add(table)
    return again


def note(con: duckdb.DuckDBPyConnection, batch: Batch, versions: Mapping[str, str | None]) -> None:
    """Insert a batch with the versions of its tables. Call it in the transaction that adds the tables."""
    known_versions = {table: version for table, version in sorted(versions.items()) if version}
    if not known_versions:
        return
    kind = digest_of([json.dumps(known_versions)])[:16]
    if not con.execute(f"SELECT 1 FROM {_KINDS} WHERE kind = {quoted(kind)} LIMIT 1").fetchall():
        rows = ", ".join(row([kind, table, version]) for table, version in known_versions.items())
        con.execute(f"INSERT INTO {_KINDS} VALUES {rows}")
    con.execute(f"INSERT INTO {_BATCHES} VALUES {row([batch.batch_id, kind])}")


def note_replaced(con: duckdb.DuckDBPyConnection, batch: Batch, versions: Versions) -> None:
    """Replace the versions of a batch. Call it in the transaction that replaces the tables."""
    con.execute(f"DELETE FROM {_BATCHES} WHERE batch_id = {quoted(batch.batch_id)}")
    note(con, batch, versions)


def note_failures(con: duckdb.DuckDBPyConnection, batch: Batch, files: Mapping[str, Staged]) -> None:
    """Insert the model failures of these files."""
    if rows := failure_rows(batch.batch_id, {table: staged.failures for table, staged in files.items()}):
        con.execute(f"INSERT INTO {FAILURES} VALUES {', '.join(rows)}")


def stale_tables(catalog: Catalog, tables: Iterable[str], known: Versions) -> list[str]:
    """Return the tables whose version differs from the current version of their model."""
    return [table for table in tables if known.get(table) != catalog.version(table)]
