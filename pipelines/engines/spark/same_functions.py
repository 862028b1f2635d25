"""Functions that DuckDB and Spark compute alike.

A query that calls another function is refused, because its answer could be silently wrong. For example, `log(x)` is to
base 10 in DuckDB and natural in Spark, and a percentile is exact in DuckDB and approximate in Spark.
"""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.lake.read.query_tree import nodes, tree_of

# tests/engines/spark/test_functions.py calls each of them on both engines.
ALIKE = frozenset(
    [
        *("+", "-", "*", "/", "//", "%", "||", "~~", "!~~", "~~*", "!~~*"),
        *("count", "count_star", "sum", "avg", "min", "max", "median", "any_value", "bool_and", "bool_or"),
        *("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp"),
        *("row_number", "rank", "dense_rank", "lag", "lead", "first_value", "last_value", "ntile", "percent_rank"),
        *("abs", "round", "floor", "ceil", "ceiling", "greatest", "least", "nullif", "coalesce", "ifnull"),
        *("sqrt", "ln", "exp", "pow", "power", "**", "^", "sign"),
        *("lower", "upper", "length", "trim", "ltrim", "rtrim", "replace", "substr", "substring"),
        *("contains", "starts_with", "ends_with", "split_part", "concat", "concat_ws", "reverse", "string_agg"),
        *("regexp_extract", "regexp_matches", "regexp_replace", "->>", "json_extract_string"),
        *("date_part", "date_trunc", "epoch"),
    ]
)
# For other units, the engines differ. `dow` begins at 0 or 1, `second` is whole or has a fraction, and `decade` is NULL
# on Spark.
_UNITS = {
    "date_part": ("year", "quarter", "month", "week", "day", "doy", "hour", "minute", "epoch"),
    "date_trunc": ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"),
}
ONLY_SELECT = "only a SELECT runs on Spark, no SHOW, DESCRIBE or SUMMARIZE, and no PIVOT"


def unlike(con: duckdb.DuckDBPyConnection, query: str) -> str | None:
    """Return why a SELECT may have another answer on Spark, or None if no difference is known.

    `con`: any connection, which only parses the query. The query must be valid for DuckDB.
    """
    tree = tree_of(con, query)
    if not tree:
        return ONLY_SELECT
    for node in nodes(tree):
        called = node.get("function_name")
        if called and (reason := _unlike_call(called, node.get("children", []))):
            return reason
        if node.get("type") == "SHOW_REF":
            return ONLY_SELECT
        if node.get("distinct_on_targets"):
            return "DISTINCT ON loses its order on Spark: write QUALIFY row_number() OVER (…) = 1"
        if node.get("sample"):
            return "Spark returns a different sample of rows"
    return None


def _unlike_call(name: str, arguments: list[dict[str, Any]]) -> str | None:
    if name not in ALIKE:
        return f"{name}() is not among the functions that were compared between DuckDB and Spark"
    if name in _UNITS and str(_constant(arguments[0])).lower() not in _UNITS[name]:
        return f"{name}() is the same in DuckDB and on Spark only for the units {', '.join(_UNITS[name])}"
    if name == "regexp_replace" and len(arguments) == 3 and not _is_anchored(_constant(arguments[1])):
        return "regexp_replace() without 'g' replaces the first match in DuckDB and all of them on Spark: write 'g'"
    if name in ("substr", "substring") and not _is_positive(_constant(arguments[1])):
        return f"{name}() starts at different characters in DuckDB and on Spark, unless the start is a number of at least 1"
    return None


def _is_anchored(pattern: Any) -> bool:
    """Return whether a pattern is anchored at the beginning or at the end. An anchored pattern matches at most once."""
    return isinstance(pattern, str) and "|" not in pattern and (pattern.startswith("^") or pattern.endswith("$"))


def _is_positive(number: Any) -> bool:
    return isinstance(number, int) and number > 0


def _constant(node: dict[str, Any]) -> Any:
    """Return the value of a literal, or None for any other node."""
    return node["value"].get("value") if node["class"] == "CONSTANT" else None
