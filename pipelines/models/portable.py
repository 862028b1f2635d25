"""SQL constructs that are forbidden in tables of captures, views and saved questions, which must also run on Spark.

Neither sqlglot nor pipelines/engines/spark/rules.py translates these constructs; see docs/other-engines.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.models.errors import CatalogError


def refuse_unportable(path: Path, query: Any) -> None:
    """Raise CatalogError if a parsed model uses a construct that is not portable.

    The message gives file, line and an alternative.
    """
    for node in query.walk():
        reason = _reason(node)
        if reason:
            raise CatalogError(f"{path}:{line_of(node)}: {reason}")


def line_of(node: Any) -> int:
    """Return the line of the first name in a node.

    If the node contains no name, use the nearest enclosing node with a name. Return 1 if no enclosing node has a name.
    """
    from sqlglot import exp

    while node is not None:
        lines = [name.meta["line"] for name in node.find_all(exp.Identifier) if "line" in name.meta]
        if lines:
            return min(lines)
        node = node.parent
    return 1


def _reason(node: Any) -> str | None:
    from sqlglot import exp

    kinds: dict[tuple[type, ...], str] = {
        (exp.Pivot,): "PIVOT is not portable; write conditional aggregates",
        (exp.Lambda,): "a lambda is not portable; write a join or a window",
        (exp.Array, exp.ArrayAgg, exp.List): "a list is not portable; keep one row per value",
        (exp.Struct, exp.Map): "a struct is not portable; write its fields as columns",
        (exp.Explode, exp.Unnest): "unnest is not portable; keep one row per value",
        (exp.PercentileCont, exp.Quantile): "a continuous quantile is not portable; rank the rows in a window",
        (exp.Columns,): "COLUMNS is not portable; name the columns",
        (exp.TableSample,): "a sample is not portable: every engine returns a different one",
        (exp.JSONExtract,): "`->` is not portable; write `->>` and cast the text",
        (exp.Log,): "log() is to base 10 here and natural elsewhere; write ln()",
    }
    for types, reason in kinds.items():
        if isinstance(node, types):
            return reason
    if isinstance(node, exp.Join) and str(node.args.get("method") or "").upper() in ("ASOF", "POSITIONAL"):
        return "an ASOF or positional join is not portable; write a window over UNION ALL"
    if isinstance(node, exp.With) and node.args.get("recursive"):
        return "a recursive CTE is not portable"
    if isinstance(node, exp.Group) and node.args.get("all"):
        return "GROUP BY ALL is not portable; list the columns"
    if isinstance(node, exp.Distinct) and node.args.get("on"):
        return "DISTINCT ON is not portable; write QUALIFY row_number() OVER (…) = 1"
    if isinstance(node, exp.SetOperation) and node.args.get("by_name"):
        return "UNION BY NAME is not portable; write the columns in one order"
    if isinstance(node, exp.Star) and node.args.get("replace"):
        return "* REPLACE is not portable; name the columns"
    if isinstance(node, exp.RegexpReplace) and not _replaces_alike(node):
        return "regexp_replace() of the first match is not portable; write 'g', or begin with ^ or end with $"
    if isinstance(node, exp.Select) and (name := _shadowed(node)):
        return f"{name} is an aggregate and a column that a window of the same SELECT reads; sum first, rank in the next SELECT"
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("row", "list_value", "struct_pack"):
        return "a list or struct is not portable; write its fields as columns"
    return None


def _replaces_alike(node: Any) -> bool:
    """Return whether a regexp_replace() replaces all matches, or can match only once.

    For any other call, DuckDB would replace only the first match, but Spark would replace all.
    """
    if node.args.get("modifiers") is not None:
        return "g" in node.args["modifiers"].name
    pattern = node.expression.name if node.expression.is_string else ""
    return "|" not in pattern and (pattern.startswith("^") or pattern.endswith("$"))


def _shadowed(select: Any) -> str | None:
    """Return the alias of an aggregate that is also an unqualified column in a window function, or None.

    Both are in the same SELECT. Spark would take the column for the alias.
    """
    from sqlglot import exp

    windows = [w for w in select.find_all(exp.Window) if w.find_ancestor(exp.Select) is select]
    read = {c.name.lower() for window in windows for c in window.find_all(exp.Column) if not c.table}
    for expression in select.expressions if read else ():
        if (
            isinstance(expression, exp.Alias)
            and expression.alias.lower() in read
            and expression.find(exp.AggFunc)
            and not expression.find(exp.Window)
        ):
            return expression.alias
    return None
