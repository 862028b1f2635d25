"""What a model may not contain, so that its text runs unchanged on other engines (spec/design.md §5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.models.errors import CatalogError


def refuse_unportable(path: Path, query: Any) -> None:
    """Check a parsed model against the portable subset. Raises CatalogError with file, line and an alternative."""
    for node in query.walk():
        reason = _reason(node)
        if reason:
            raise CatalogError(f"{path}:{line_of(node)}: {reason}")


def line_of(node: Any) -> int:
    """Returns the line of a node: of the first name in it, else of its enclosing nodes; 1 if none has a position."""
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
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("row", "list_value", "struct_pack"):
        return "a list or struct is not portable; write its fields as columns"
    return None
