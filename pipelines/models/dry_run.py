"""Columns and types of every table, from running the models on tables without rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import duckdb

from pipelines.base import database
from pipelines.models.cache import digest_of, remembered
from pipelines.models.catalog import Catalog
from pipelines.models.rule_tables import create_rules
from pipelines.models.run import run_models
from pipelines.models.sqlfile import STAGED

Types = list[tuple[str, str]]
_INSTALLED = digest_of([__file__])[:16]  # so that several installed versions do not replace each other's cache entries


def create_staged(con: duckdb.DuckDBPyConnection, catalog: Catalog, table: str) -> str:
    """Create `_staged_<table>` without rows, with the columns and types that the table's SQL reads from it."""
    return _create(con, STAGED + table, catalog.models[table].staged)


def _create(con: duckdb.DuckDBPyConnection, table: str, types: Mapping[str, str]) -> str:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    con.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    return table


def create_empty(con: duckdb.DuckDBPyConnection, catalog: Catalog, scope: str) -> None:
    """Create in `con` the tables of a scope that ingestion writes, with their columns and types but without rows."""
    for table, types in _types_of_scope(catalog, scope).items():
        _create(con, table, types)


@lru_cache
def _types_of_scope(catalog: Catalog, scope: str) -> dict[str, dict[str, str]]:
    def computed() -> dict[str, dict[str, str]]:
        with database.connect() as con:
            _create_by_sql(con, catalog, scope)
            return {table: dict(_described(con, table)) for table in catalog.ingested(scope)}

    digest = _digest(catalog, catalog.ingested(scope))
    return remembered(f"types-of-{scope}-{_INSTALLED}", digest, computed)


def _digest(catalog: Catalog, tables: Iterable[str]) -> str:
    """Return a hash over everything that determines these tables' column types.

    Model versions do not cover the staged and input tables, so the hash covers their columns as well.
    """
    input_columns = [repr((name, table.columns)) for name, table in sorted(catalog.inputs.items())]
    versions = [repr((catalog.version(name), sorted(catalog.models[name].staged.items()))) for name in tables]
    return digest_of([duckdb.__version__, *input_columns, *versions])


def _described(con: duckdb.DuckDBPyConnection, table: str) -> Types:
    return [(row[0], row[1]) for row in con.execute(f"DESCRIBE {table}").fetchall()]


def _create_by_sql(con: duckdb.DuckDBPyConnection, catalog: Catalog, scope: str) -> None:
    for table in catalog.ingested(scope):
        model = catalog.models[table]
        created = create_inputs(con, catalog, [table])
        for rules in (catalog.models[name] for name in model.dependencies if name in catalog.rules):
            create_rules(con, rules)
        con.execute(f"CREATE OR REPLACE TABLE {table} AS {model.sql}")
        for name in created:
            con.execute(f"DROP TABLE {name}")


def create_inputs(con: duckdb.DuckDBPyConnection, catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """Create the input tables of `tables`, with their columns and types but without rows. Return their names."""
    created = {}
    for table in tables:
        for name in catalog.models[table].dependencies:
            if name == STAGED + table:
                created[name] = create_staged(con, catalog, table)
            elif name in catalog.inputs and name not in created and (columns := catalog.inputs[name].columns):
                created[name] = _create(con, name, {column: kind for column, kind, _ in columns})
    return list(created)


@lru_cache
def types_of_tables(catalog: Catalog) -> dict[str, Types]:
    """Return the columns and DuckDB types of every public table."""
    if catalog.shipped:  # a user's rules do not change types
        return types_of_tables(catalog.shipped)
    digest = _digest(catalog, catalog.models)
    types_by_table = remembered(f"types-of-tables-{_INSTALLED}", digest, lambda: _dry_run(catalog))
    return {table: [(column, kind) for column, kind in columns] for table, columns in types_by_table.items()}


def _dry_run(catalog: Catalog) -> dict[str, Types]:
    with database.connect() as con:
        for scope in {model.scope for model in catalog.models.values() if model.kind == "lake"}:
            _create_by_sql(con, catalog, scope)
        create_inputs(con, catalog, [name for name, model in catalog.models.items() if model.kind != "lake"])
        run_models(con, catalog, catalog.public)
        return {name: _described(con, name) for name in catalog.public}
