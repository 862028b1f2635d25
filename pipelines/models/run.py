"""Runs models in a DuckDB connection: the requested ones and everything they read, each once, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

import duckdb

from pipelines.models.catalog import Catalog, Model
from pipelines.models.errors import CatalogError
from pipelines.sqltext import quoted


@dataclass(frozen=True)
class ModelRun:
    """A model that ran: its rows and the seconds it took."""

    name: str
    n_rows: int
    seconds: float


def run_models(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    targets: Iterable[str],
    have: frozenset[str] = frozenset(),
    on_model: Callable[[str], None] | None = None,
) -> list[ModelRun]:
    """Create the targets, and what they read, as tables in `con`.

    `have` are tables or views that already exist, besides the lake tables (`events`, `traces`, `findings`) and what
    `request_windows` makes. An intermediate table is dropped after its last reader. `on_model(name)` is called before
    each model. Raises CatalogError for a model whose SQL DuckDB rejects.
    """
    wanted = set(targets)
    present = {*have, *(name for name, model in catalog.models.items() if model.kind == "lake")}
    order = _needed(catalog, wanted, present)
    last_reader = {source: name for name in order for source in catalog.models[name].dependencies}
    runs, called = [], set()
    for name in order:
        if on_model:
            on_model(name)
        started = time.perf_counter()
        rows = _create(con, catalog.models[name], called)
        runs.append(ModelRun(name, rows, time.perf_counter() - started))
        for source, reader in last_reader.items():
            if reader == name and source in order and source not in wanted and catalog.models[source].kind != "rules":
                con.execute(f"DROP TABLE {source}")
    return runs


def _needed(catalog: Catalog, wanted: set[str], present: set[str]) -> list[str]:
    needed, todo = set(), [name for name in wanted if name not in present]
    while todo:
        name = todo.pop()
        if name in needed or name in present or name not in catalog.models:
            continue
        needed.add(name)
        todo += catalog.models[name].dependencies
    return [name for name in catalog.models if name in needed]


def _create(con: duckdb.DuckDBPyConnection, model: Model, called: set[str]) -> int:
    """`called`: functions that already ran for another of their tables; this table's function is added."""
    if model.kind == "rules":
        create_rules(con, model)
    elif model.kind == "python":
        if model.function not in called:
            module, function = model.function.split(":")
            getattr(import_module(module), function)(con)
            called.add(model.function)
    else:
        try:
            con.execute(f"CREATE OR REPLACE TABLE {model.name} AS {model.sql}")
        except (
            duckdb.BinderException,
            duckdb.CatalogException,
            duckdb.ParserException,
        ) as error:  # not a fault of the data
            raise CatalogError(f"{model.path}: DuckDB rejects it: {str(error).strip()}") from None
    return con.execute(f"SELECT count(*) FROM {model.name}").fetchall()[0][0]


def create_rules(con: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Create a rule table from its CSV.

    The dialect is given: guessed from few rows, quotes would be part of the text. `""` is an empty text, as in HTA's
    label for edges without time; a field with nothing in it is NULL.
    """
    dialect = "header = true, comment = '#', delim = ',', quote = '\"', escape = '\"', allow_quoted_nulls = false"
    rows = f"SELECT * FROM read_csv({quoted(model.path)}, {dialect})"
    try:
        con.execute(f"CREATE OR REPLACE TABLE {model.name} AS {rows}")
    except duckdb.InvalidInputException as error:
        raise CatalogError(f"{model.path}: {str(error).strip()}") from None
