"""Queries of a few named traces, answered without checking the rest of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def open_named_traces(
    folder: Path, query: str, tables: Sequence[str], parser: Any, limits: Any
) -> tuple[Any, str] | None:
    """Return a LockedLake and the query to run there (see named_traces.py), or None if the whole lake must be checked.

    The rest of the lake need not be checked under three conditions. The analysts' file shows all committed batches. The
    query reads only rows of traces that it names, except from `traces`. The tables of these traces are computed and
    undamaged.
    `tables`: the tables that the query reads, from `tables_read`. `parser`: see connect_parser.
    """
    import duckdb

    from pipelines.lake import Lake
    from pipelines.lake.names import ANALYST, EVENTS, MARK
    from pipelines.lake.publish.analyst_file import connect_attached, published_whole_and_now
    from pipelines.lake.read.named_traces import condition_in
    from pipelines.lake.read.sandbox import CLOSED, LockedLake, lock

    lake = Lake(folder)
    catalog = lake.catalog()
    condition = condition_in(parser, query)
    if condition is None or lake.without_broken or not set(tables) <= {EVENTS, *catalog.materialized}:
        return None
    of_traces = {MARK, "events", "findings", *catalog.materialized}
    if not condition.tables <= of_traces or not condition.others <= {MARK} or not published_whole_and_now(lake):
        return None

    def connect(settings: Any) -> Any:
        con = connect_attached(lake.root / ANALYST, settings, CLOSED)
        lock(con, lake.root)
        return con

    try:
        locked = LockedLake(connect, limits)
    except duckdb.Error:  # the file needs another version of DuckDB, or was replaced at this moment
        return None
    try:
        named = condition.known(locked.con)
        if named and _is_ready(lake, locked.con, tables, named):
            return locked, named.query
    except BaseException:
        locked.close()
        raise
    locked.close()
    return None


def _is_ready(lake: Any, con: Any, tables: Sequence[str], named: Any) -> bool:
    """Return whether the tables of the named traces' batches are computed and undamaged."""
    from pipelines.lake.names import EVENTS, Batch
    from pipelines.lake.publish.analyst_file import tables_to_check
    from pipelines.models.sqltext import row
    from pipelines.runs.materialize.per_trace import stale_batches

    rows = con.execute(f"SELECT DISTINCT batch_id FROM traces WHERE trace_id IN {row(named.ids)}").fetchall()
    batches = [Batch(name) for (name,) in rows]
    computed = [table for table in tables if table != EVENTS]
    if not batches or any(map(lake.is_digest, batches)) or stale_batches(lake, lake.catalog(), computed, batches):
        return False
    return not lake.broken(tables_to_check([*tables, *named.tables]), batches)
