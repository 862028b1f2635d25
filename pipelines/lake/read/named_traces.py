"""Which traces a query is about: the files of their batches are all that it needs.

DuckDB leaves out the files of other batches where a query says `trace_id = '…'`. Where it says `trace_id = (SELECT …)`, it learns
the id when it has opened a file of every batch; so the ids are looked up first and put into the query. Only conditions that
hold for every row are understood; any other query is left as it is.
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
"""Traces: a query of more of them reads so many files that leaving out others is not worth a long condition."""
_Tree = dict[str, Any]


@dataclass(frozen=True)
class NamedTraces:
    """The `tables` of which a query needs only the rows of the traces `ids`, each named once in it; `others`: tables of
    which it may need all. `query`: with the ids in place of the SELECT that found them.
    """

    tables: frozenset[str]
    others: frozenset[str]
    ids: tuple[str, ...]
    query: str


@dataclass(frozen=True)
class Condition:
    """What a query says about its traces: their ids, or a `select` of them, which may stand for exactly one (`is_one`)."""

    query: str
    tables: frozenset[str]
    others: frozenset[str]
    ids: tuple[str, ...] = ()
    select: str = ""
    is_one: bool = False
    place: int = 0
    """Which of the conditions of WHERE it is."""

    def known(self, con: duckdb.DuckDBPyConnection) -> NamedTraces | None:
        """Returns the traces, looked up if need be; None where they cannot be told beforehand, or are too many."""
        if self.ids:
            return NamedTraces(self.tables, self.others, self.ids, self.query)
        try:  # names mean what they mean inside of it, so one that needs the outer query's rows fails here
            relation = con.sql(self.select)
            found = relation.limit(_MOST + 1).fetchall() if relation and relation.types == ["VARCHAR"] else []
        except duckdb.Error:
            return None
        ids = tuple(dict.fromkeys(name for (name,) in found if name is not None))
        if not ids or len(found) > _MOST or (self.is_one and len(found) != 1):
            return None
        query = _with_ids(con, self, ids)
        return NamedTraces(self.tables, self.others, ids, query) if query else None


def condition_in(con: duckdb.DuckDBPyConnection, query: str) -> Condition | None:
    """Returns what a SELECT says about its traces, by the tree that DuckDB makes of it; None where that is not understood.

    `con`: any connection; the query is text there.
    """
    try:
        tree = tree_of(con, query)
        node = tree["statements"][0]["node"]
        if len(tree["statements"]) != 1 or node["type"] != "SELECT_NODE" or any(map(_is_beyond, nodes(tree))):
            return None
        joined = _joined(node["from_table"])
        if not joined:
            return None
        named = Counter(one["table_name"].lower() for one in nodes(tree) if one.get("type") == "BASE_TABLE")
        tables = frozenset(name for name in joined.values() if named[name] == 1)
        others = frozenset(named) - tables
        for place, condition in enumerate(_conjuncts(node.get("where_clause"))):
            if ids := _ids(condition, joined):
                return Condition(query, tables, others, ids)
            if found := _select(condition, joined):
                text = text_of(con, {"error": False, "statements": [found["subquery"]]})
                is_one = condition["type"] == "COMPARE_EQUAL"
                return Condition(query, tables, others, select=text, is_one=is_one, place=place)
        return None
    except (KeyError, IndexError, TypeError, RecursionError, duckdb.Error):  # nested too deeply, or of another form
        return None


def _with_ids(con: duckdb.DuckDBPyConnection, condition: Condition, ids: Sequence[str]) -> str | None:
    """Returns the query with ids instead of the SELECT; None if the text that DuckDB makes of it does not say just that."""
    listed = ", ".join(map(quoted, ids))
    try:
        tree = tree_of(con, condition.query)
        other = tree_of(con, f"SELECT 1 WHERE trace_id IN ({listed}, '')")["statements"][0]["node"]["where_clause"]
        (found,) = [one for n, one in enumerate(_conjuncts(_where(tree))) if n == condition.place]
        sides = [found["child"]] if found["type"] == "SUBQUERY" else [found["left"], found["right"]]
        (column,) = [side for side in sides if side["type"] == "COLUMN_REF"]
        found_in = {**other, "children": [column, *other["children"][1:-1]]}
        found.clear()
        found.update(found_in)
        text = text_of(con, tree)
        return text if _without_places(tree_of(con, text)) == _without_places(tree) else None
    except (KeyError, ValueError, RecursionError, duckdb.Error):
        return None


def _where(tree: _Tree) -> _Tree:
    return tree["statements"][0]["node"]["where_clause"]


_PLACES = ("query_location", "query_location_length")


def _without_places(tree: Any) -> Any:
    """Returns a tree without where in the text its parts were."""
    if isinstance(tree, dict):
        return {name: _without_places(value) for name, value in tree.items() if name not in _PLACES}
    return [_without_places(value) for value in tree] if isinstance(tree, list) else tree


def _is_beyond(node: _Tree) -> bool:
    """Whether names may mean something else than tables of the lake, or rows are drawn before conditions are looked at."""
    if node.get("type") == "BASE_TABLE" and (node.get("schema_name") or node.get("catalog_name")):
        return True
    return bool(node.get("cte_map", {}).get("map")) or bool(node.get("sample"))


def _joined(table: _Tree) -> dict[str, str]:
    """Returns the tables of a FROM in which `trace_id` is the same for all, by their names there; none if it may not be."""
    if table["type"] == "BASE_TABLE":
        name = table["table_name"].lower()
        return {} if table.get("column_name_alias") else {(table.get("alias") or name).lower(): name}
    if table["type"] != "JOIN" or table["join_type"] != "INNER" or table["ref_type"] != "REGULAR":
        return {}
    if "trace_id" not in [name.lower() for name in table.get("using_columns", ())]:
        return {}
    left, right = _joined(table["left"]), _joined(table["right"])
    return {**left, **right} if left and right else {}


def _conjuncts(condition: _Tree | None) -> Iterator[_Tree]:
    if condition and condition["type"] == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from _conjuncts(child)
    elif condition:
        yield condition


def _is_trace_id(node: _Tree, tables: dict[str, str]) -> bool:
    if node["type"] != "COLUMN_REF":
        return False
    *of, name = (part.lower() for part in node["column_names"])
    return name == "trace_id" and (not of or (len(of) == 1 and of[0] in tables))


def _ids(condition: _Tree, tables: dict[str, str]) -> tuple[str, ...]:
    """Returns the ids in `trace_id = '…'` and `trace_id IN ('…', …)`."""
    if condition["type"] == "COMPARE_EQUAL":
        sides = [condition["left"], condition["right"]]
    elif condition["type"] == "COMPARE_IN":
        sides = condition["children"]
    else:
        return ()
    values = [side for side in sides if not _is_trace_id(side, tables)]
    found = tuple(text for value in values if (text := _constant(value)) is not None)
    is_understood = len(found) == len(values) == len(sides) - 1 and len(found) <= _MOST
    return found if is_understood and (condition["type"] != "COMPARE_IN" or _is_trace_id(sides[0], tables)) else ()


def _constant(node: _Tree) -> str | None:
    if node["type"] != "VALUE_CONSTANT" or node["value"]["type"]["id"] != "VARCHAR" or node["value"].get("is_null"):
        return None
    return node["value"]["value"]


def _select(condition: _Tree, tables: dict[str, str]) -> _Tree | None:
    """Returns the SELECT in `trace_id = (SELECT …)` and `trace_id IN (SELECT …)`."""
    if condition["type"] == "COMPARE_EQUAL":
        sides = [condition["left"], condition["right"]]
        found = [side for side in sides if side["type"] == "SUBQUERY" and side["subquery_type"] == "SCALAR"]
        return found[0] if found and any(_is_trace_id(side, tables) for side in sides) else None
    if condition["type"] == "SUBQUERY" and condition["subquery_type"] == "ANY":
        is_it = condition["comparison_type"] == "COMPARE_EQUAL" and _is_trace_id(condition["child"], tables)
        return condition if is_it else None
    return None
