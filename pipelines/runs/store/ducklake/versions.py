"""Which version of its model computed each table of each batch of a DuckLake: what is older can be found and computed again.

Most batches share all their versions, so a batch has one row, which names a kind; a kind has a row per table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import duckdb

from pipelines.lake.commit.batch_rows import LEFT_OUT, Failure
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
    """Creates the tables in a store that has none yet. Called under the lock."""
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
    """Returns what is known of each batch (of some, by default of all). Tables of which nothing is known are not there:
    they were committed by a tracelake that noted no versions. Nor are those that lack a trace for no fault of it, as in a folder lake.
    """
    if not _are_there(con):
        return {}
    where = "" if batches is None else f" WHERE batch_id IN {row(['', *batches])}"
    rows = con.execute(  # one query, which sees one state: another writer may add a kind at any time
        f"SELECT kind, NULL, table_name, version FROM {_KINDS} "
        f"UNION ALL SELECT kind, batch_id, NULL, NULL FROM {_BATCHES}{where}"
    ).fetchall()
    kinds: dict[str, dict[str, str]] = {}
    for kind, batch, table, version in rows:
        if batch is None:
            kinds.setdefault(kind, {})[table] = version
    found: dict[str, Versions] = {}
    for kind, batch, *_ in rows:
        if batch is not None:
            # Copies of one batch, committed by two versions: only what both say is known.
            found[batch] = dict(found[batch].items() & kinds[kind].items()) if batch in found else kinds[kind]
    for batch, again in _again(con).items():
        if batch in found:
            found[batch] = {table: version for table, version in found[batch].items() if table not in again}
    return found


def _again(con: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    """Returns, by batch, the tables on which a model may succeed when it runs again."""
    query = f"SELECT batch_id, trace_id, table_name, model, reason FROM {FAILURES} WHERE outcome = '{LEFT_OUT}'"
    again: dict[str, set[str]] = {}
    for batch, trace_id, table, model, reason in con.execute(query).fetchall():
        if Failure(trace_id, model, reason).is_no_fault_of_data:
            again.setdefault(batch, set()).add(table)
    return again


def note(con: duckdb.DuckDBPyConnection, batch: Batch, versions: Mapping[str, str | None]) -> None:
    """Adds a batch with the versions of its tables. Called in the transaction that adds the tables."""
    told = {table: version for table, version in sorted(versions.items()) if version}
    if not told:
        return
    kind = digest_of([json.dumps(told)])[:16]
    if not con.execute(f"SELECT 1 FROM {_KINDS} WHERE kind = {quoted(kind)} LIMIT 1").fetchall():
        rows = ", ".join(row([kind, table, version]) for table, version in told.items())
        con.execute(f"INSERT INTO {_KINDS} VALUES {rows}")
    con.execute(f"INSERT INTO {_BATCHES} VALUES {row([batch.batch_id, kind])}")


def note_replaced(con: duckdb.DuckDBPyConnection, batch: Batch, versions: Versions) -> None:
    """Notes other versions of a batch than before. Called in the transaction that replaces the tables."""
    con.execute(f"DELETE FROM {_BATCHES} WHERE batch_id = {quoted(batch.batch_id)}")
    note(con, batch, versions)


def note_failures(con: duckdb.DuckDBPyConnection, batch: Batch, files: Mapping[str, Staged]) -> None:
    """Adds where models failed that these files need."""
    rows = [
        row([one.trace_id, table, one.model, one.reason, one.outcome, batch.batch_id])
        for table, staged in sorted(files.items())
        for one in staged.failures
    ]
    if rows:
        con.execute(f"INSERT INTO {FAILURES} VALUES {', '.join(rows)}")


def stale_tables(catalog: Catalog, tables: Iterable[str], known: Versions) -> list[str]:
    """Returns those of these tables whose version is not that of the model."""
    return [table for table in tables if known.get(table) != catalog.version(table)]
