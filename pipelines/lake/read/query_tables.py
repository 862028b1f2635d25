"""The tables of the lake that a query reads, derived from its text without running it."""

from __future__ import annotations

from typing import Any

from pipelines.lake.names import EVENTS, MARK
from pipelines.lake.publish.prices import PRICE_TABLE
from pipelines.lake.read.query_tree import named_in
from pipelines.lake.read.sandbox import connect_parser
from pipelines.lake.read.views import MEMBERSHIP_TABLES
from pipelines.models.catalog import load_catalog


def tables_read(query: str, con: Any = None) -> list[str]:
    """Return the tables that a query reads, directly or through views, if they may be outdated, damaged or missing.

    Return [] if the query cannot be parsed. `con`: a connection that parses the query. If it is None, open a
    connection.
    """
    catalog = load_catalog()
    names = tables_named(query, con)
    known = (name for name in names if name in catalog.models)
    read = {*catalog.closure(known, through=lambda model: model.kind == "view")}
    if MARK in names and "capture_id" in query.lower():  # capture_id is derived from these tables
        read.update(MEMBERSHIP_TABLES)
    listed = (EVENTS, *catalog.materialized, *catalog.of_captures, PRICE_TABLE)
    return [name for name in listed if name in names | read]


def tables_named(query: str, con: Any) -> set[str]:
    """Return the names after FROM and JOIN, in lower case.

    Return an empty set if the query cannot be parsed, because DuckDB reports the error when it runs the query.
    """
    if con is None:
        with connect_parser() as parser:
            return tables_named(query, parser)
    named = named_in(con, query)
    return _named_in_others(query) if named is None else set(named.tables)


def _named_in_others(query: str) -> set[str]:
    """Return `tables_named` for a query without a DuckDB syntax tree, such as PIVOT."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        return {table.name.lower() for table in parse_one(query, dialect="duckdb").find_all(exp.Table)}
    except (SqlglotError, RecursionError):
        return set()
