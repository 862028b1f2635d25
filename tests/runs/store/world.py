"""Units of small traces, and the rows that a store shows of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import duckdb

from pipelines.lake import Lake
from pipelines.lake.lake import Staged
from pipelines.lake.names import REJECTS, VERSION_KEY, table_file
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.store import Store
from tests.lake.world import TABLES, write_trace

STORED = ["traces", "events", "findings", REJECTS, *TABLES]
_OF_RUN = {
    "batch_id",
    "ingested_at",
    "seen_at",
    "began_at",
}  # if a trace's clock has no date, began_at is the time of ingestion


def make_unit(folder: Path, seeds: Iterable[int], tables: list[str] | None = TABLES) -> Lake:
    """Build a private lake of one small trace per seed, and compute some tables (None: all)."""
    files = [write_trace(folder.parent / "in" / f"{seed}.json", seed, distributedInfo={"rank": seed}) for seed in seeds]
    lake = Lake(folder)
    ingest(files, lake)
    materialize(lake, tables, and_publish=False)
    return lake


def rewrite(unit: Lake, table: str, columns: str, version: str | None = None) -> None:
    """Replace a unit's file of a table, as another version of the model would have written it."""
    (batch,) = unit.batches()
    path, target = table_file(unit.root, table, batch), unit.root / "new.parquet"
    said = f", KV_METADATA {{{VERSION_KEY}: '{version}'}}" if version else ""
    rows = f"SELECT {columns} FROM read_parquet('{path}', hive_partitioning = false)"
    duckdb.execute(f"COPY ({rows}) TO '{target}' (FORMAT parquet{said})")
    unit.put_all(batch, {table: Staged(target, version=version)})


def copy_of(unit: Lake, folder: Path) -> Lake:
    """Copy the unit to another folder and return the copy."""
    shutil.copytree(unit.root, folder)
    return Lake(folder)


def shown(store: Store, tables: list[str] | None = None) -> dict[str, list[tuple]]:
    """Return every row that a store shows, without the columns that vary by run: batch ids and times."""
    catalog = load_catalog()
    rows = {}
    with store.connect() as con:
        for table in tables or [name for name in catalog.public if catalog.models[name].kind != "rules"]:
            columns = [column for (column, *_) in con.execute(f"DESCRIBE {table}").fetchall()]
            listed = ", ".join(f'"{column}"' for column in sorted(columns) if column not in _OF_RUN)
            rows[table] = sorted(con.execute(f"SELECT {listed} FROM {table}").fetchall(), key=repr)
    return rows


def trace_ids(unit: Lake) -> set[str]:
    """Return the traces of a unit."""
    return set(unit.known_traces())
