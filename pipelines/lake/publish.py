"""The analysts' DuckDB file: views over the large tables, real tables for the small ones, comments on all of it.

It is built beside and renamed into place, so an analyst's open shell neither blocks ingestion nor sees half a state.
"""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from pathlib import Path

import duckdb

from pipelines.lake.layout import ANALYST, MARK, table_files
from pipelines.lake.store import Lake, quoted
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.models.run import run_models

_SMALL = ("traces", "findings", "rejects")


def publish(lake: Lake, catalog: Catalog | None = None) -> Path:
    """Write `<lake>/analyst.duckdb` anew and return its path. Tables without rows yet are empty, with their types."""
    catalog = catalog or load_catalog()
    target = lake.root / ANALYST
    lake.root.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".analyst-", suffix=".duckdb", dir=lake.root)
    os.close(handle)
    os.unlink(name)  # DuckDB wants to make the file itself
    try:
        with duckdb.connect(name) as con:
            for table in (MARK, *(t for t in catalog.public if t != MARK)):
                _publish_table(con, lake, catalog.models[table])
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)
        Path(name + ".wal").unlink(missing_ok=True)
    return target


def column_types(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    """The columns and DuckDB types of every public table, found by running all models on nothing."""
    return _column_types(tuple(catalog.models[name] for name in catalog.models))


@lru_cache
def _column_types(models: tuple[Model, ...]) -> dict[str, list[tuple[str, str]]]:
    from pipelines.critical_path.windows import request_windows
    from pipelines.ingest import empty_lake_tables

    catalog = Catalog({model.name: model for model in models})
    with duckdb.connect() as con:
        empty_lake_tables(con, catalog)
        request_windows(con, [])
        run_models(con, catalog, catalog.public)
        return {
            name: [(row[0], row[1]) for row in con.execute(f"DESCRIBE {name}").fetchall()] for name in catalog.public
        }


def _publish_table(con: duckdb.DuckDBPyConnection, lake: Lake, model: Model) -> None:
    files = table_files(lake.root, model.name)
    small = model.name in _SMALL or model.layer == "summary"
    kind = "TABLE"
    if model.kind == "rules":
        con.execute(f"CREATE TABLE {model.name} AS FROM read_csv({quoted(model.path)}, comment = '#', header = true)")
    elif not files:
        types = column_types(load_catalog())[model.name]
        con.execute(f"CREATE TABLE {model.name} ({', '.join(f'{_name(column)} {kind}' for column, kind in types)})")
    else:
        kind = "TABLE" if small else "VIEW"
        rows = f"SELECT * FROM read_parquet([{', '.join(quoted(file) for file in files)}], hive_partitioning = false)"
        if model.name not in (MARK, "rejects"):
            rows += " SEMI JOIN traces USING (trace_id, batch_id)"
        con.execute(f"CREATE {kind} {model.name} AS {rows}")
    _comment(con, model, kind)


def _comment(con: duckdb.DuckDBPyConnection, model: Model, kind: str) -> None:
    con.execute(f"COMMENT ON {kind} {model.name} IS {quoted(model.doc)}")
    present = {row[0] for row in con.execute(f"DESCRIBE {model.name}").fetchall()}
    for column in model.columns:
        if column.name in present:
            con.execute(f"COMMENT ON COLUMN {model.name}.{_name(column.name)} IS {quoted(column.doc)}")


def _name(column: str) -> str:
    return f'"{column}"'
