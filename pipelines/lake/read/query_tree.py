"""What a query reads, from the tree that DuckDB makes of its text; nothing is run."""

from __future__ import annotations

import json
from dataclasses import dataclass

import duckdb

from pipelines.models.sqltext import quoted


@dataclass(frozen=True)
class Named:
    """The names after FROM and JOIN, in lower case: of tables, and of functions that return tables."""

    tables: frozenset[str]
    functions: frozenset[str]


def named_in(con: duckdb.DuckDBPyConnection, query: str) -> Named | None:
    """Returns what a SELECT names; None for other statements, for PIVOT, and for what cannot be parsed.

    `con`: any connection; the query is text there.
    """
    try:
        tree = json.loads(con.execute(f"SELECT json_serialize_sql({quoted(query)})").fetchall()[0][0])
    except RecursionError:  # nested too deeply for Python
        return None
    if tree["error"]:
        return None
    tables, functions, todo = set(), set(), [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                tables.add(node["table_name"].lower())
            elif node.get("type") == "TABLE_FUNCTION":
                functions.add(node["function"].get("function_name", "").lower())
            todo += node.values()
        elif isinstance(node, list):
            todo += node
    return Named(frozenset(tables), frozenset(functions))
