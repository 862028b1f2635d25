"""Batches of the lake → model tables. A file that is missing or older than its model is computed anew.

A batch is worked through in groups of traces of at most GROUP_EVENTS events, so memory does not grow with the batch;
each table's file is put in place whole, so a killed run leaves the old or the new one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.windows import WindowRequest, request_windows
from pipelines.lake.layout import Batch, table_file
from pipelines.lake.publish import publish
from pipelines.lake.store import VERSION_KEY, Lake, quoted
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import run_models

GROUP_EVENTS = 1_500_000
MEMORY_LIMIT = "2GB"


@dataclass(frozen=True)
class Materialized:
    """A table's file that was written: its rows and the seconds its models took."""

    table: str
    batch: Batch
    n_rows: int
    seconds: float


def stale(lake: Lake, catalog: Catalog, tables: Iterable[str], batch: Batch) -> list[str]:
    """The tables of a batch whose file is missing or was computed by another version of the model."""
    return [table for table in tables if lake.version_of(table, batch) != catalog.version(table)]


def materialize(
    lake: Lake,
    tables: Iterable[str] | None = None,
    batches: Iterable[Batch] | None = None,
    force: bool = False,
    on_step: Callable[[str], Any] | None = None,
) -> list[Materialized]:
    """Bring model tables up to date (all of them by default) and publish; `on_step(text)` is called before each model.

    Raises CatalogError for a name that is no table.
    """
    catalog = load_catalog()
    asked = list(catalog.materialized if tables is None else tables)
    catalog.closure(asked)
    asked = [table for table in asked if table in catalog.materialized]
    done: list[Materialized] = []
    for batch in lake.batches() if batches is None else batches:
        wanted = asked if force else stale(lake, catalog, asked, batch)
        if wanted:
            done += _materialize_batch(lake, catalog, wanted, batch, on_step)
    publish(lake, catalog)
    return done


def _materialize_batch(
    lake: Lake, catalog: Catalog, tables: list[str], batch: Batch, on_step: Callable[[str], Any] | None
) -> list[Materialized]:
    folder = Path(tempfile.mkdtemp(dir=lake.staging(batch)))
    try:
        seconds: dict[str, float] = {}
        groups = _groups(lake, batch)
        for number, traces in enumerate(groups):
            label = "" if len(groups) == 1 else f" (group {number + 1} of {len(groups)})"
            _run_group(lake, catalog, tables, batch, traces, folder / str(number), seconds, label, on_step)
        return [_put(lake, catalog, table, batch, folder, seconds.get(table, 0.0)) for table in tables]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _groups(lake: Lake, batch: Batch) -> list[list[str]]:
    with duckdb.connect() as con:
        path = str(table_file(lake.root, "traces", batch))
        rows = con.execute("SELECT trace_id, n_events FROM read_parquet(?) ORDER BY trace_id", [path]).fetchall()
    groups: list[list[str]] = []
    size = 0
    for trace_id, n_events in rows:
        if not groups or size + n_events > GROUP_EVENTS:
            groups.append([])
            size = 0
        groups[-1].append(trace_id)
        size += n_events
    return groups


def _run_group(
    lake: Lake,
    catalog: Catalog,
    tables: list[str],
    batch: Batch,
    traces: list[str],
    folder: Path,
    seconds: dict[str, float],
    label: str,
    on_step: Callable[[str], Any] | None,
) -> None:
    folder.mkdir()
    with duckdb.connect(str(folder / "work.duckdb")) as con:
        con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        con.execute("SET preserve_insertion_order = false")
        _batch_views(con, lake, batch, traces)
        request_windows(con, [WindowRequest(trace_id) for trace_id in traces])
        runs = run_models(con, catalog, tables, on_model=lambda name: on_step(name + label) if on_step else None)
        for run in runs:
            seconds[run.name] = seconds.get(run.name, 0.0) + run.seconds
        for table in tables:
            rows = f"SELECT *, {quoted(batch.batch_id)} AS batch_id FROM {table}"
            con.execute(f"COPY ({rows}) TO {quoted(folder / (table + '.parquet'))} (FORMAT parquet, COMPRESSION zstd)")
    (folder / "work.duckdb").unlink()


def _batch_views(con: duckdb.DuckDBPyConnection, lake: Lake, batch: Batch, traces: list[str]) -> None:
    listed = ", ".join(quoted(trace_id) for trace_id in traces)
    for table in ("traces", "events", "findings"):
        path = quoted(table_file(lake.root, table, batch))
        rows = f"SELECT * FROM read_parquet({path}, hive_partitioning = false) WHERE trace_id IN ({listed})"
        con.execute(f"CREATE VIEW {table} AS {rows}")


def _put(
    lake: Lake, catalog: Catalog, table: str, batch: Batch, folder: Path, seconds: float
) -> Materialized:
    target = folder / f"{table}.whole"
    parts = ", ".join(quoted(path) for path in sorted(folder.glob(f"*/{table}.parquet"), key=lambda p: int(p.parent.name)))
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT * FROM read_parquet([{parts}])) TO {quoted(target)} (FORMAT parquet, COMPRESSION zstd, "
            f"KV_METADATA {{{VERSION_KEY}: {quoted(catalog.version(table))}}})"
        )
        n_rows = con.execute("SELECT count(*) FROM read_parquet(?)", [str(target)]).fetchall()[0][0]
    lake.put(table, batch, target)
    return Materialized(table, batch, n_rows, seconds)
