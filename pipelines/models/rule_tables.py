"""Creation of rule tables from their CSV files and the user's own rows."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from pipelines.models.catalog import Added, Catalog, Model
from pipelines.models.errors import CatalogError
from pipelines.models.sqltext import quoted, row


def create_rules(con: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Create a rule table from its CSV, with a user's rows first. Raise CatalogError for rows that cannot be used.

    Types are not detected, because versions of DuckDB may detect different types in the same file. `""` is an empty
    text, as in HTA's label for edges without time. An empty field is NULL. Buffers of 2 MB instead of 32 MB suffice for
    any line, and leave memory for the trace.
    """
    dialect = "header = true, comment = '#', delim = ',', quote = '\"', escape = '\"', allow_quoted_nulls = false, buffer_size = 2097152"
    columns = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in model.types.items())
    rows = (
        f"SELECT * FROM read_csv({quoted(model.path)}, auto_detect = false, columns = {{{columns}}}, {dialect}, "
        "hive_partitioning = false)"
    )
    try:
        con.execute(f"CREATE OR REPLACE TABLE {model.name} AS {rows}")
    except (duckdb.InvalidInputException, duckdb.DataError) as error:
        raise CatalogError(f"{model.path}: {str(error).strip()}") from None
    if model.added:
        _add_rows(con, model, model.added)


def create_missing_rules(con: duckdb.DuckDBPyConnection, catalog: Catalog, models: Iterable[str]) -> None:
    """Create the rule tables that these models read, unless the connection has them."""
    existing = {name for (name,) in con.execute("SHOW TABLES").fetchall()}
    dependencies = {name for model in models for name in catalog.models[model].dependencies}
    for name in sorted((dependencies - existing) & catalog.models.keys()):
        if catalog.models[name].kind == "rules":
            create_rules(con, catalog.models[name])


def _add_rows(con: duckdb.DuckDBPyConnection, model: Model, added: Added) -> None:
    """Insert a user's rows first, in their order (`rowid`), because the first matching rule wins."""
    if added.error:
        raise CatalogError(added.error)
    if added.rows:
        name, key, shipped = model.name, model.columns[0].name, f"_shipped_{model.name}"
        con.execute(f"CREATE OR REPLACE TEMP TABLE {shipped} AS FROM {name}")
        con.execute(f"DELETE FROM {name}; INSERT INTO {name} VALUES {', '.join(map(row, added.rows))}")
        con.execute(f"INSERT INTO {name} FROM {shipped} WHERE {key} NOT IN (SELECT {key} FROM {name}) ORDER BY rowid")
        con.execute(f"DROP TABLE {shipped}")
