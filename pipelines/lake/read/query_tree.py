"""Syntax trees of queries, which DuckDB parses without running them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from pipelines.models.sqltext import quoted


@dataclass(frozen=True)
class Named:
    """The names after FROM and JOIN in lower case, split into tables and table functions."""

    tables: frozenset[str]
    functions: frozenset[str]


def tree_of(con: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """Return DuckDB's syntax tree of SELECTs, or {} for other statements, PIVOT, and invalid SQL.

    `con`: any connection, which only parses the query. Raise RecursionError for a query that is nested too deeply for
    Python.
    """
    tree = json.loads(con.execute(f"SELECT json_serialize_sql({quoted(query)})").fetchall()[0][0])
    return {} if tree["error"] else tree


def text_of(con: duckdb.DuckDBPyConnection, tree: dict[str, Any]) -> str:
    """Return the SQL text of a tree. Raise duckdb.Error for an invalid tree."""
    return con.execute(f"SELECT json_deserialize_sql({quoted(json.dumps(tree))})").fetchall()[0][0]


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects in a tree."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def named_in(con: duckdb.DuckDBPyConnection, query: str) -> Named | None:
    """Return the tables and table functions that a SELECT reads, or None if DuckDB cannot parse it into a tree.

    See `tree_of`.
    """
    try:
        tree = tree_of(con, query)
    except RecursionError:
        return None
    if not tree:
        return None
    tables, functions = set(), set()
    for node in nodes(tree):
        if node.get("type") == "BASE_TABLE":
            tables.add(node["table_name"].lower())
        elif node.get("type") == "TABLE_FUNCTION":
            functions.add(node["function"].get("function_name", "").lower())
    return Named(frozenset(tables), frozenset(functions))
