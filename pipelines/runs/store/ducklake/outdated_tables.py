"""The gaps in a DuckLake's tables: traces that are missing from a table, or whose rows are from another model version.

A folder lake computes such rows before a query. A DuckLake answers from the committed rows, so the answer names the
gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb

from pipelines.lake.names import CAPTURE_MARK, CAPTURE_RANKS, MARK, mark_of
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake import versions
from pipelines.runs.store.ducklake.schema import KEYS_TABLE, has_own
from pipelines.runs.store.ducklake.user_tables import catalog_of

_UNITS = {MARK: "traces", CAPTURE_MARK: "captures"}


def outdated(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
    """Return a sentence for each of these tables that misses traces or captures, or has them from another version.

    `con`: from `Store.connect`. If all tables are up to date, read only the catalog, except for tables of captures.
    """
    catalog = catalog_of(con)
    requested = [name for name in tables if name in (*catalog.materialized, *catalog.of_captures)]
    if not requested or not has_own(con):
        return []
    versions_by_batch = versions.read(con)
    sentences = []
    for mark in _UNITS:
        of_mark = [table for table in requested if mark_of(table) == mark]
        if of_mark and _batches_lack(con, catalog, mark, of_mark, versions_by_batch):
            sentences += _sentences(con, catalog, mark, of_mark, versions_by_batch)
    return [*sentences, *_without_capture(con, [table for table in requested if mark_of(table) == CAPTURE_MARK])]


def _batches_lack(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    mark: str,
    tables: Sequence[str],
    versions_by_batch: dict[str, versions.Versions],
) -> bool:
    """Return whether the catalog lists a batch without the current version of one of these tables.

    The batch may have been removed.
    """
    current: dict[int, bool] = {}  # by id, because batches share their versions
    for batch_versions in versions_by_batch.values():
        if id(batch_versions) not in current:
            current[id(batch_versions)] = not versions.stale_tables(catalog, tables, batch_versions)
    batches = con.execute(f"SELECT DISTINCT batch_id FROM {KEYS_TABLE} WHERE mark = {quoted(mark)}").fetchall()
    return not all(name in versions_by_batch and current[id(versions_by_batch[name])] for (name,) in batches)


def _sentences(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    mark: str,
    tables: Sequence[str],
    versions_by_batch: dict[str, versions.Versions],
) -> list[str]:
    n_keys: dict[str, int] = dict(con.execute(f"SELECT batch_id, count(*) FROM {mark} GROUP BY batch_id").fetchall())
    total, sentences = sum(n_keys.values()), []
    for table in tables:
        missing = sum(n for name, n in n_keys.items() if table not in versions_by_batch.get(name, {}))
        older = sum(
            n
            for name, n in n_keys.items()
            if versions_by_batch.get(name, {}).get(table) not in (None, catalog.version(table))
        )
        parts = [
            f"{reason} for {n:,} of {total:,} {_UNITS[mark]}"
            for n, reason in ((missing, "not computed"), (older, "computed by another version of its model"))
            if n
        ]
        if parts:
            sentences.append(f"{table} was {' and '.join(parts)}: {_what_to_do(table)}")
    return sentences


def _without_capture(con: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> list[str]:
    if not tables:
        return []
    query = f"SELECT count(*) FROM {MARK} WHERE trace_id NOT IN (SELECT trace_id FROM {CAPTURE_RANKS})"
    n = con.execute(query).fetchall()[0][0]
    return [f"{n:,} traces are in no capture yet: {_what_to_do(*tables)}"] if n else []


def _what_to_do(*tables: str) -> str:
    return f"`tracelake materialize {' '.join(tables)}` with the same --lake does that"
