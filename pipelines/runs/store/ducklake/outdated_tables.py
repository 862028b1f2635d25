"""What the tables of a DuckLake lack: traces for which they were not computed, or by another version of their model.

A folder lake computes that before it answers; a DuckLake answers from what was committed, so the answer says so.
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

_TOLD = {MARK: "traces", CAPTURE_MARK: "captures"}


def outdated(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
    """Returns a sentence for each of these tables that does not have every trace or capture from the model of today.

    `con`: as of `Store.connect`. Where all is up to date this reads the catalog only, except for tables of captures.
    """
    catalog = catalog_of(con)
    asked = [name for name in tables if name in (*catalog.materialized, *catalog.of_captures)]
    if not asked or not has_own(con):
        return []
    known = versions.read(con)
    found = []
    for mark in _TOLD:
        of_mark = [table for table in asked if mark_of(table) == mark]
        if of_mark and _batches_lack(con, catalog, mark, of_mark, known):
            found += _told(con, catalog, mark, of_mark, known)
    return [*found, *_without_capture(con, [table for table in asked if mark_of(table) == CAPTURE_MARK])]


def _batches_lack(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    mark: str,
    tables: Sequence[str],
    known: dict[str, versions.Versions],
) -> bool:
    """Returns whether a batch, perhaps one that was removed since, lacks one of these tables: told by the catalog alone."""
    current: dict[int, bool] = {}  # batches share what is known of them
    for found in known.values():
        if id(found) not in current:
            current[id(found)] = not versions.stale_tables(catalog, tables, found)
    batches = con.execute(f"SELECT DISTINCT batch_id FROM {KEYS_TABLE} WHERE mark = {quoted(mark)}").fetchall()
    return not all(name in known and current[id(known[name])] for (name,) in batches)


def _told(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    mark: str,
    tables: Sequence[str],
    known: dict[str, versions.Versions],
) -> list[str]:
    n_keys: dict[str, int] = dict(con.execute(f"SELECT batch_id, count(*) FROM {mark} GROUP BY batch_id").fetchall())
    total, told = sum(n_keys.values()), []
    for table in tables:
        missing = sum(n for name, n in n_keys.items() if table not in known.get(name, {}))
        older = sum(
            n for name, n in n_keys.items() if known.get(name, {}).get(table) not in (None, catalog.version(table))
        )
        parts = [
            f"{what} for {n:,} of {total:,} {_TOLD[mark]}"
            for n, what in ((missing, "not computed"), (older, "computed by another version of its model"))
            if n
        ]
        if parts:
            told.append(f"{table} was {' and '.join(parts)}: {_what_to_do(table)}")
    return told


def _without_capture(con: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> list[str]:
    if not tables:
        return []
    query = f"SELECT count(*) FROM {MARK} WHERE trace_id NOT IN (SELECT trace_id FROM {CAPTURE_RANKS})"
    n = con.execute(query).fetchall()[0][0]
    return [f"{n:,} traces are in no capture yet: {_what_to_do(*tables)}"] if n else []


def _what_to_do(*tables: str) -> str:
    return f"`tracelake materialize {' '.join(tables)}` with the same --lake does that"
