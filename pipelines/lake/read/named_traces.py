"""The traces that a query names, which limit the files that the query needs.

DuckDB prunes the files of other batches if a query has `trace_id = '…'`. For `trace_id = (SELECT …)`, it learns the id
only after opening a file of every batch, so the ids are looked up first and put into the query. Only conditions that
apply to every row are recognized. Any other query stays unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from pipelines.lake.read.query_tree import nodes, text_of, tree_of
from pipelines.models.sqltext import quoted

_MOST = 200
"""Maximum number of traces. With more traces, pruning the remaining files is not worth a long condition."""
_Tree = dict[str, Any]


@dataclass(frozen=True)
class NamedTraces:
    """The traces that a query needs, and the query with their ids in place of the SELECT that returned them.

    `tables`: the tables from which the query needs only rows of the traces `ids`. The query names each of them once.
    `others`: the tables from which it may need all rows.
    """

    tables: frozenset[str]
    others: frozenset[str]
    ids: tuple[str, ...]
    query: str


@dataclass(frozen=True)
class Condition:
    """A query's condition on trace ids, as ids or as a `select` that returns them (exactly one id if `is_single`)."""

    query: str
    tables: frozenset[str]
    others: frozenset[str]
    ids: tuple[str, ...] = ()
    select: str = ""
    is_single: bool = False
    place: int = 0
    """Index of the condition among the conjuncts of WHERE."""

    def known(self, con: duckdb.DuckDBPyConnection) -> NamedTraces | None:
        """Return the traces, or None if they cannot be determined or are more than _MOST. Run `select` if necessary."""
        if self.ids:
            return NamedTraces(self.tables, self.others, self.ids, self.query)
        try:  # run separately, so a SELECT that refers to the outer query fails here
            relation = con.sql(self.select)
            rows = relation.limit(_MOST + 1).fetchall() if relation and relation.types == ["VARCHAR"] else []
        except duckdb.Error:
            return None
        ids = tuple(dict.fromkeys(name for (name,) in rows if name is not None))
        if not ids or len(rows) > _MOST or (self.is_single and len(rows) != 1):
            return None
        query = _with_ids(con, self, ids)
        return NamedTraces(self.tables, self.others, ids, query) if query else None


def condition_in(con: duckdb.DuckDBPyConnection, query: str, key: str = "trace_id") -> Condition | None:
    """Return the condition on ids in a SELECT's syntax tree, or None without a recognized condition.

    `con`: any connection, which only parses the query. `key`: trace_id, or capture_id for a condition on capture ids.
    """
    try:
        tree = tree_of(con, query)
        node = tree["statements"][0]["node"]
        if len(tree["statements"]) != 1 or node["type"] != "SELECT_NODE" or any(map(_is_beyond, nodes(tree))):
            return None
        joined = _joined(node["from_table"], key)
        if not joined:
            return None
        named = Counter(node["table_name"].lower() for node in nodes(tree) if node.get("type") == "BASE_TABLE")
        tables = frozenset(name for name in joined.values() if named[name] == 1)
        others = frozenset(named) - tables
        for index, condition in enumerate(_conjuncts(node.get("where_clause"))):
            if ids := _ids(condition, joined, key):
                return Condition(query, tables, others, ids)
            if subquery := _select(condition, joined, key):
                text = text_of(con, {"error": False, "statements": [subquery["subquery"]]})
                is_single = condition["type"] == "COMPARE_EQUAL"
                return Condition(query, tables, others, select=text, is_single=is_single, place=index)
        return None
    except (KeyError, IndexError, TypeError, RecursionError, duckdb.Error):  # the tree is too deep or has another form
        return None


def _with_ids(con: duckdb.DuckDBPyConnection, condition: Condition, ids: Sequence[str]) -> str | None:
    """Return the query with ids in place of the SELECT, or None if the replacement fails.

    The replacement also fails if DuckDB's text of the new tree does not parse into the same tree.
    """
    listed = ", ".join(map(quoted, ids))
    try:
        tree = tree_of(con, condition.query)
        other = tree_of(con, f"SELECT 1 WHERE trace_id IN ({listed}, '')")["statements"][0]["node"]["where_clause"]
        (target,) = [conjunct for index, conjunct in enumerate(_conjuncts(_where(tree))) if index == condition.place]
        sides = [target["child"]] if target["type"] == "SUBQUERY" else [target["left"], target["right"]]
        (column,) = [side for side in sides if side["type"] == "COLUMN_REF"]
        replacement = {**other, "children": [column, *other["children"][1:-1]]}
        target.clear()
        target.update(replacement)
        text = text_of(con, tree)
        return text if _without_places(tree_of(con, text)) == _without_places(tree) else None
    except (KeyError, ValueError, RecursionError, duckdb.Error):
        return None


def _where(tree: _Tree) -> _Tree:
    return tree["statements"][0]["node"]["where_clause"]


_PLACES = ("query_location", "query_location_length")


def _without_places(tree: Any) -> Any:
    """Return a tree without the positions of its parts in the text."""
    if isinstance(tree, dict):
        return {name: _without_places(value) for name, value in tree.items() if name not in _PLACES}
    return [_without_places(value) for value in tree] if isinstance(tree, list) else tree


def _is_beyond(node: _Tree) -> bool:
    """Return whether a node, such as a qualified table, a CTE or a SAMPLE, rules out pruning.

    With a CTE, names may not be tables of the lake. A sample is drawn before conditions apply.
    """
    if node.get("type") == "BASE_TABLE" and (node.get("schema_name") or node.get("catalog_name")):
        return True
    return bool(node.get("cte_map", {}).get("map")) or bool(node.get("sample"))


def _joined(table: _Tree, key: str) -> dict[str, str]:
    """Return the tables of a FROM by alias, if a joined row has the same `key` in all tables. Otherwise return {}.

    This is the case for a single table, and for inner joins with USING (`key`).
    """
    if table["type"] == "BASE_TABLE":
        name = table["table_name"].lower()
        return {} if table.get("column_name_alias") else {(table.get("alias") or name).lower(): name}
    if table["type"] != "JOIN" or table["join_type"] != "INNER" or table["ref_type"] != "REGULAR":
        return {}
    if key not in [name.lower() for name in table.get("using_columns", ())]:
        return {}
    left_tables, right_tables = _joined(table["left"], key), _joined(table["right"], key)
    return {**left_tables, **right_tables} if left_tables and right_tables else {}


def _conjuncts(condition: _Tree | None) -> Iterator[_Tree]:
    if condition and condition["type"] == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from _conjuncts(child)
    elif condition:
        yield condition


def _is_key(node: _Tree, tables: dict[str, str], key: str) -> bool:
    if node["type"] != "COLUMN_REF":
        return False
    *qualifiers, name = (part.lower() for part in node["column_names"])
    return name == key and (not qualifiers or (len(qualifiers) == 1 and qualifiers[0] in tables))


def _ids(condition: _Tree, tables: dict[str, str], key: str) -> tuple[str, ...]:
    """Return the ids in `key = '…'` and `key IN ('…', …)`, or an empty tuple for other conditions."""
    if condition["type"] == "COMPARE_EQUAL":
        sides = [condition["left"], condition["right"]]
    elif condition["type"] == "COMPARE_IN":
        sides = condition["children"]
    else:
        return ()
    values = [side for side in sides if not _is_key(side, tables, key)]
    ids = tuple(text for value in values if (text := _constant(value)) is not None)
    is_understood = len(ids) == len(values) == len(sides) - 1 and len(ids) <= _MOST
    return ids if is_understood and (condition["type"] != "COMPARE_IN" or _is_key(sides[0], tables, key)) else ()


def _constant(node: _Tree) -> str | None:
    if node["type"] != "VALUE_CONSTANT" or node["value"]["type"]["id"] != "VARCHAR" or node["value"].get("is_null"):
        return None
    return node["value"]["value"]


def _select(condition: _Tree, tables: dict[str, str], key: str) -> _Tree | None:
    """Return the SELECT in `key = (SELECT …)` and `key IN (SELECT …)`, or None for other conditions."""
    if condition["type"] == "COMPARE_EQUAL":
        sides = [condition["left"], condition["right"]]
        subqueries = [side for side in sides if side["type"] == "SUBQUERY" and side["subquery_type"] == "SCALAR"]
        return subqueries[0] if subqueries and any(_is_key(side, tables, key) for side in sides) else None
    if condition["type"] == "SUBQUERY" and condition["subquery_type"] == "ANY":
        is_key_in = condition["comparison_type"] == "COMPARE_EQUAL" and _is_key(condition["child"], tables, key)
        return condition if is_key_in else None
    return None
