"""Batches of the lake → model tables. A file that is missing or of another version than its model is computed anew.

A batch is worked through in groups of traces of at most GROUP_EVENTS events, so memory does not grow with the batch;
each table's file is put in place whole, so a killed run leaves the old or the new one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.windows import request_windows, usual_windows
from pipelines.lake.layout import MARK, Batch, table_file
from pipelines.lake.publish import publish
from pipelines.lake.store import VERSION_KEY, Lake
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import run_models
from pipelines.sqltext import file_list, quoted

# 1.5 million events and their edges stay below the memory limit without spilling; a larger trace is a group of its own.
GROUP_EVENTS = 1_500_000
MEMORY_LIMIT = "2GB"
_LAKE_TABLES = ("traces", "events", "findings")


@dataclass(frozen=True)
class Materialized:
    """A table's file that was written: its rows and the seconds its own model took."""

    table: str
    batch: Batch
    n_rows: int
    seconds: float


def stale(lake: Lake, catalog: Catalog, tables: Iterable[str], batch: Batch) -> list[str]:
    """The tables of a batch whose file is missing or was computed by another version of the model."""
    versions = lake.versions_of(batch, tables)
    return [table for table in tables if versions.get(table) != catalog.version(table)]


def materialize(
    lake: Lake,
    tables: Iterable[str] | None = None,
    batches: Iterable[Batch] | None = None,
    force: bool = False,
    on_step: Callable[[str], Any] | None = None,
    and_publish: bool = True,
) -> list[Materialized]:
    """Bring model tables up to date (all of them by default) and publish; `on_step(text)` is called before each model.

    `and_publish`: False where the caller computes more and publishes then.

    Private models, and public ones that the asked tables read, are computed with them and not stored. Raises
    CatalogError for a name that is no table.
    """
    catalog = load_catalog()
    asked = list(catalog.materialized if tables is None else tables)
    catalog.closure(asked)  # refuses names that are no tables
    asked = [table for table in catalog.materialized if table in set(asked)]
    done: list[Materialized] = []
    for batch in lake.batches() if batches is None else batches:
        wanted = asked if force else stale(lake, catalog, asked, batch)
        if wanted:
            done += _materialize_batch(lake, _Work(catalog, wanted, batch, on_step or (lambda _: None)))
    if and_publish:
        publish(lake, catalog)
    return done


@dataclass
class _Work:
    """Tables to compute for one batch, and the seconds each took so far."""

    catalog: Catalog
    tables: list[str]
    batch: Batch
    on_step: Callable[[str], Any]
    seconds: dict[str, float] = field(default_factory=dict)


def _materialize_batch(lake: Lake, work: _Work) -> list[Materialized]:
    folder = Path(tempfile.mkdtemp(dir=lake.staging(work.batch)))
    try:
        groups = _groups(lake, work.batch)
        for number, traces in enumerate(groups):
            label = "" if len(groups) == 1 else f" (group {number + 1} of {len(groups)})"
            _run_group(lake, work, traces, folder / f"{number:06d}", label)
        with duckdb.connect() as con:  # one for all: opening one costs as much as many of the tables
            return [_put(con, lake, work, table, folder) for table in work.tables]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _groups(lake: Lake, batch: Batch) -> list[list[str]]:
    """The batch's traces in order of trace_id, cut where the events of a group would exceed GROUP_EVENTS."""
    with duckdb.connect() as con:
        path = quoted(table_file(lake.root, "traces", batch))
        rows = con.execute(f"SELECT trace_id, n_events FROM read_parquet({path}) ORDER BY trace_id").fetchall()
    groups: list[list[str]] = []
    size = 0
    for trace_id, n_events in rows:
        if not groups or size + n_events > GROUP_EVENTS:
            groups.append([])
            size = 0
        groups[-1].append(trace_id)
        size += n_events
    return groups


def _run_group(lake: Lake, work: _Work, traces: list[str], folder: Path, label: str) -> None:
    folder.mkdir()
    database = folder / "work.duckdb"
    with duckdb.connect(str(database)) as con:
        con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        con.execute("SET preserve_insertion_order = false")
        _batch_views(con, lake, work.batch, traces)
        request_windows(con, usual_windows(con, traces))
        runs = run_models(con, work.catalog, work.tables, on_model=lambda name: work.on_step(name + label))
        for run in runs:
            work.seconds[run.name] = work.seconds.get(run.name, 0.0) + run.seconds
        order = (
            " ORDER BY trace_id" if len(traces) > 1 else ""
        )  # so that a trace's row groups are found by their bounds
        for table in work.tables:
            rows = f"SELECT *, {quoted(work.batch.batch_id)} AS batch_id FROM {table}{order}"
            _write(con, rows, folder / f"{table}.parquet", work.catalog.version(table))
    database.unlink()


def _batch_views(con: duckdb.DuckDBPyConnection, lake: Lake, batch: Batch, traces: list[str]) -> None:
    listed = ", ".join(quoted(trace_id) for trace_id in traces)
    for table in _LAKE_TABLES:
        path = quoted(table_file(lake.root, table, batch))
        columns = "* EXCLUDE (capture_id)" if table == MARK else "*"  # no batch tells which capture a trace is in
        rows = f"SELECT {columns} FROM read_parquet({path}, hive_partitioning = false) WHERE trace_id IN ({listed})"
        con.execute(f"CREATE VIEW {table} AS {rows}")


def _put(con: duckdb.DuckDBPyConnection, lake: Lake, work: _Work, table: str, folder: Path) -> Materialized:
    parts = sorted(folder.glob(f"*/{table}.parquet"))
    whole = parts[0]
    if len(parts) > 1:
        whole = folder / f"{table}.whole"
        _write(con, f"SELECT * FROM read_parquet({file_list(parts)})", whole, work.catalog.version(table))
    n_rows = con.execute(f"SELECT count(*) FROM read_parquet({quoted(whole)})").fetchall()[0][0]
    lake.put(table, work.batch, whole)
    return Materialized(table, work.batch, n_rows, work.seconds.get(table, 0.0))


def _write(con: duckdb.DuckDBPyConnection, rows: str, target: Path, version: str) -> None:
    options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{VERSION_KEY}: {quoted(version)}}}"
    con.execute(f"COPY ({rows}) TO {quoted(target)} ({options})")
