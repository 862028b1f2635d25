"""The analysts' DuckDB file: views over the large tables, real tables for the small ones, comments on all of it.

It is built beside and renamed into place, so an analyst's open shell neither blocks ingestion nor sees half a state.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import duckdb

from pipelines.lake.layout import ANALYST, ANALYST_TEMP, CAPTURE_MARK, KEYS, MARK, PUBLISHED, REJECTS, mark_of
from pipelines.lake.prices import PRICES, add_prices
from pipelines.lake.store import TOLD_BY, Lake, committed_rows, trace_rows
from pipelines.lake.told import content_of
from pipelines.models.cache import digest_of, remembered
from pipelines.models.catalog import Catalog, Column, Model, load_catalog
from pipelines.models.run import run_models
from pipelines.sqltext import quoted

_SMALL = (MARK, "findings", REJECTS)  # and all about runs of schedules
_LARGE = ("collective_ranks", "capture_critical_path")  # of the tables of captures, which are small otherwise
BATCH_COLUMN = Column("batch_id", "Ingest run that the trace came with.")


def publish(lake: Lake, catalog: Catalog | None = None) -> Path:
    """Write `<lake>/analyst.duckdb` anew and return its path. Tables without rows yet are empty, with their types.

    It shows what is committed at this moment, and the user's prices (prices.py); large tables are views that hold
    absolute paths, so it stays where it is. Raises CatalogError for a model whose SQL DuckDB refuses.
    """
    catalog = catalog or load_catalog()
    column_types(catalog)  # refuses models that DuckDB refuses, before anything is made of them
    target = lake.root / ANALYST
    with lake.publish_lock(), tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:
        built = Path(folder) / ANALYST
        files = _listed(lake, catalog.public)
        state = _state(lake, catalog, files)
        with duckdb.connect(str(built)) as con:
            con.execute("BEGIN")  # one flush to disk instead of one a statement
            for table in sorted(catalog.public, key=lambda name: name not in KEYS):  # the marks first: others read them
                _publish_table(con, catalog, catalog.models[table], files)
            add_prices(con, lake.root)
            con.execute("COMMIT")
        with built.open("rb+") as file:
            os.fsync(file.fileno())
        told = Path(folder) / PUBLISHED
        told.write_text(json.dumps(state))
        # Killed between the two, the old state stands beside the new file: it is published once more.
        os.replace(built, target)
        os.replace(told, lake.root / PUBLISHED)
    return target


def is_published(lake: Lake, tables: Iterable[str]) -> bool:
    """The analysts' file shows what is committed of these tables, and which batches there are, at this moment.

    It does not where something came in since, where a writer was killed before it published, or where another version
    of the models or other prices did.
    """
    try:
        told = json.loads((lake.root / PUBLISHED).read_text())
    except (OSError, ValueError):  # never published, or by an older version
        return False
    now = _state(lake, load_catalog(), _listed(lake, {*KEYS, *TOLD_BY, REJECTS, *tables}))
    return (lake.root / ANALYST).exists() and now.items() <= told.items()


def _listed(lake: Lake, tables: Iterable[str]) -> dict[str, list[Path]]:
    batches = lake.all_batches()
    return {table: lake.committed_files(table, batches) for table in tables}


def _state(lake: Lake, catalog: Catalog, files: dict[str, list[Path]]) -> dict[str, str]:
    """A hash for each table over its files, and one over all else that is in the analysts' file."""
    models = [f"{name}={catalog.version(name)}" for name in catalog.public]
    rest = digest_of([duckdb.__version__, content_of(lake.root / PRICES), *models])
    # A table that is computed anew keeps its file's name: views show it, and tables that were copied do not.
    hashes = {table: digest_of(f"{p.name}:{p.stat().st_mtime_ns}" for p in paths) for table, paths in files.items()}
    return {**hashes, "": rest}


@lru_cache
def column_types(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    """The columns and DuckDB types of every public table, found by running all models on nothing."""
    digest = digest_of([duckdb.__version__, *(catalog.version(name) for name in catalog.models)])
    found = remembered("column-types", digest, lambda: _dry_run(catalog))
    return {table: [(column, kind) for column, kind in columns] for table, columns in found.items()}


def _dry_run(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    from pipelines.critical_path.windows import request_windows
    from pipelines.fleet.stage import empty_stage
    from pipelines.ingest import empty_lake_tables

    with duckdb.connect() as con:
        empty_lake_tables(con, catalog)
        request_windows(con, [])
        empty_stage(con)
        run_models(con, catalog, catalog.public)
        types = {n: [(r[0], r[1]) for r in con.execute(f"DESCRIBE {n}").fetchall()] for n in catalog.public}
    for name in (*catalog.materialized, *catalog.of_captures):
        types[name].append((BATCH_COLUMN.name, "VARCHAR"))
    return types


def _publish_table(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, model: Model, files: dict[str, list[Path]]
) -> None:
    kind = "TABLE"
    if model.kind == "rules":
        run_models(con, catalog, [model.name])
    elif model.kind == "view":
        kind = "VIEW"
        con.execute(f"CREATE VIEW {model.name} AS {model.sql}")
    elif not files[model.name]:
        types = column_types(catalog)[model.name]
        con.execute(f"CREATE TABLE {model.name} ({', '.join(f'{_name(column)} {type_}' for column, type_ in types)})")
    else:
        is_small = model.name in _SMALL or model.layer == "summary" or mark_of(model.name) not in (MARK, CAPTURE_MARK)
        is_small |= mark_of(model.name) == CAPTURE_MARK and model.name not in _LARGE
        kind = "TABLE" if is_small else "VIEW"
        rows = trace_rows(files) if model.name == MARK else committed_rows(model.name, files[model.name])
        if model.kind == "lake" and mark_of(model.name) != MARK and model.name != REJECTS:
            # Files of an older version lack columns, which views over the table and the report ask for.
            columns = ", ".join(
                f"CAST(NULL AS {type_}) AS {_name(c)}" for c, type_ in column_types(catalog)[model.name]
            )
            rows = f"({rows}) UNION ALL BY NAME SELECT {columns} WHERE FALSE"
        con.execute(f"CREATE {kind} {model.name} AS {rows}")
    _comment(con, model, kind)


def _comment(con: duckdb.DuckDBPyConnection, model: Model, kind: str) -> None:
    present = {row[0] for row in con.execute(f"DESCRIBE {model.name}").fetchall()}
    comments = [f"COMMENT ON {kind} {model.name} IS {quoted(model.doc)}"]
    for column in (BATCH_COLUMN, *model.columns):
        if column.name in present:
            comments.append(f"COMMENT ON COLUMN {model.name}.{_name(column.name)} IS {quoted(column.doc)}")
    con.execute("; ".join(comments))


def _name(column: str) -> str:
    return f'"{column}"'
