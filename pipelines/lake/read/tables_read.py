"""Which tables of the lake a query reads, from its text; nothing is run."""

from __future__ import annotations

from typing import Any

from pipelines.lake.lake import TOLD_BY
from pipelines.lake.names import MARK
from pipelines.lake.publish.prices import PRICE_TABLE
from pipelines.lake.read.query_tree import named_in
from pipelines.lake.read.sandbox import connect_parser
from pipelines.models.catalog import Catalog, load_catalog


def tables_read(query: str, con: Any = None) -> list[str]:
    """Returns the tables that a query reads, directly or through views, and that must be brought up to date or may be
    damaged.

    None of them if it cannot be parsed. `con`: a connection to parse it with; otherwise one is opened.
    """
    catalog = load_catalog()
    found = _named_in(query, con)
    views = [name for name in found if name in catalog.models and catalog.models[name].kind == "view"]
    read = {source for name in views for source in _read_by_view(catalog, name)}
    if MARK in found and "capture_id" in query.lower():  # which tables of captures it needs
        read.update(TOLD_BY)
    return [name for name in (*catalog.materialized, *catalog.of_captures, PRICE_TABLE) if name in found | read]


def _named_in(query: str, con: Any = None) -> set[str]:
    """The names after FROM and JOIN, in lower case; none where the query cannot be parsed: DuckDB says better why."""
    if con is None:
        with connect_parser() as own:
            return _named_in(query, own)
    named = named_in(con, query)
    return _named_in_others(query) if named is None else set(named.tables)


def _named_in_others(query: str) -> set[str]:
    """As `_named_in`, of PIVOT, which DuckDB does not tell the parts of."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        return {table.name.lower() for table in parse_one(query, dialect="duckdb").find_all(exp.Table)}
    except (SqlglotError, RecursionError):
        return set()


def _read_by_view(catalog: Catalog, name: str) -> set[str]:
    """What a view reads, directly or through other views."""
    found = set(catalog.models[name].dependencies)
    views = [source for source in found if source in catalog.models and catalog.models[source].kind == "view"]
    return found.union(*(_read_by_view(catalog, view) for view in views))
