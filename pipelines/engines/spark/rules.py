"""Rewrite rules for differences between DuckDB and Spark that sqlglot does not handle, on the tree of the query.

A rule changes a tree in DuckDB's dialect into one that Ibis (with sqlglot) writes for Spark with the same meaning.
pipelines/models/portable.py rejects models that no rule can translate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlglot import exp, parse_one

Tree = Any


def carried_over(sql: str, doubles: Collection[str] = ()) -> str:
    """Return a query in DuckDB's dialect in the form that `Backend.sql(…, dialect="duckdb")` of Ibis needs for Spark.

    `doubles`: names of the DOUBLE columns in the tables that it reads.
    """
    tree = parse_one(sql, dialect="duckdb")
    round_casts(tree, doubles)  # first, because `decimals_as_doubles` removes the decimals
    for rule in RULES:
        rule(tree)
    return tree.sql("duckdb", comments=False)


def write_out_windows(tree: Tree) -> None:
    """Expand `OVER (w ROWS …)`, because in Spark no window can inherit from a named window."""
    for select in tree.find_all(exp.Select):
        named = {window.name: window for window in select.args.get("windows") or []}
        for window in list(select.find_all(exp.Window)) if named else ():
            source = named.get(window.alias)
            if source is None or window.find_ancestor(exp.Select) is not select or window.arg_key == "windows":
                continue
            window.set("alias", None)
            for part in ("partition_by", "order", "spec"):
                if not window.args.get(part) and (value := source.args.get(part)):
                    window.set(
                        part, [expression.copy() for expression in value] if isinstance(value, list) else value.copy()
                    )
        select.set("windows", None)


def decimals_as_doubles(tree: Tree) -> None:
    """Write `1.5` as `1.5e0`, a DOUBLE in both engines.

    `1.5` divides as a DOUBLE in DuckDB, but as a DECIMAL with few digits in Spark.
    """
    for literal in list(tree.find_all(exp.Literal)):
        if not literal.is_string and "." in literal.this and "e" not in literal.this.lower():
            literal.replace(exp.Literal.number(f"{literal.this}e0"))


def materialized_ctes(tree: Tree) -> None:
    """Remove `AS MATERIALIZED`, a hint on DuckDB's join order that Spark does not have."""
    for cte in tree.find_all(exp.CTE):
        cte.set("materialized", None)


def wide_integers(tree: Tree) -> None:
    """Replace `HUGEINT` by DECIMAL(38, 0), the widest integer of Spark."""
    for kind in list(tree.find_all(exp.DataType)):
        if kind.this in (exp.DataType.Type.INT128, exp.DataType.Type.UINT128):
            kind.replace(exp.DataType.build("DECIMAL(38, 0)"))


def zero_divisors(tree: Tree) -> None:
    """Wrap divisors in NULLIF, because `a % 0` and `a // 0` are NULL in DuckDB and an error in Spark."""
    for node in list(tree.find_all(exp.Mod, exp.IntDiv)):
        divisor = node.expression
        if not isinstance(divisor, exp.Nullif) and not (isinstance(divisor, exp.Literal) and divisor.this.strip("0.")):
            node.set("expression", exp.func("nullif", divisor.copy(), exp.Literal.number(0)))


def whole_epochs(tree: Tree) -> None:
    """Replace `epoch(t)`, which returns fractional seconds in DuckDB but whole seconds in Spark."""
    for node in [candidate for candidate in tree.find_all(exp.Extract, exp.TimeToUnix) if _is_epoch(candidate)]:
        time = node.this if isinstance(node, exp.TimeToUnix) else node.expression
        node.replace(exp.cast(exp.cast(time.copy(), "TIMESTAMPTZ"), "DOUBLE"))


def _is_epoch(node: Tree) -> bool:
    return isinstance(node, exp.TimeToUnix) or (isinstance(node, exp.Extract) and node.name.upper() == "EPOCH")


def backslashes_in_like(tree: Tree) -> None:
    r"""Double backslashes in `LIKE 'a\_b'`, because DuckDB has no escape character unless ESCAPE names one.

    Spark uses the backslash as the escape character.
    """
    for node in list(tree.find_all(exp.Like, exp.ILike)):
        pattern = node.expression
        if isinstance(pattern, exp.Literal) and "\\" in pattern.this and not isinstance(node.parent, exp.Escape):
            node.set("expression", exp.Literal.string(pattern.this.replace("\\", "\\\\")))


def round_casts(tree: Tree, doubles: Collection[str]) -> None:
    """Round before `CAST(… AS BIGINT)`, which truncates in Spark.

    In DuckDB it rounds a DOUBLE half to even and a DECIMAL half up. A column is a DOUBLE if its name is in `doubles`,
    or is the query's alias for an expression with such a column or a division.
    """
    kinds = {name.lower(): _DOUBLE for name in doubles}
    aliases = list(tree.find_all(exp.Alias))
    while added := {
        alias.alias.lower(): kind
        for alias in aliases
        if alias.alias.lower() not in kinds and (kind := _fraction(alias.this, kinds)) is not None
    }:
        kinds |= added
    for cast in list(tree.find_all(exp.Cast)):
        if cast.to.this in exp.DataType.INTEGER_TYPES and (kind := _fraction(cast.this, kinds)) is not None:
            cast.set("this", exp.func("rint" if kind == _DOUBLE else "round", cast.this.copy()))
    _round_digits(tree, kinds)
    _divide_doubles(tree, kinds)


def _divide_doubles(tree: Tree, kinds: Mapping[str, int]) -> None:
    """Rewrite `f // 2` of a DOUBLE, whose fraction Spark's `DIV` drops.

    DuckDB keeps the fraction, and returns NULL for a zero divisor.
    """
    for node in reversed(list(tree.find_all(exp.IntDiv))):
        if _fraction(node, kinds) is not None:
            divisor = exp.func("nullif", node.expression.copy(), exp.Literal.number(0))
            node.replace(exp.paren(exp.Div(this=node.this.copy(), expression=divisor)))


def _round_digits(tree: Tree, kinds: Mapping[str, int]) -> None:
    """Rewrite `round(0.145e0, 2)`. DuckDB rounds 100 times the DOUBLE (to 0.14), Spark its shortest text (to 0.15)."""
    for node in reversed(list(tree.find_all(exp.Round))):  # the inner ones first
        digits = node.args.get("decimals")
        if isinstance(digits, exp.Literal) and digits.this.isdigit() and _fraction(node.this, kinds) == _DOUBLE:
            scale = exp.Literal.number(f"1e{digits.this}")
            scaled = exp.func("round", exp.Mul(this=exp.paren(node.this.copy()), expression=scale))
            node.replace(exp.paren(exp.Div(this=scaled, expression=scale.copy())))


_DECIMAL, _DOUBLE = 1, 2  # in this order, because an expression with both is a DOUBLE
_RETURN_DOUBLES = (
    *(exp.Div, exp.Avg, exp.Median, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow, exp.PercentRank),
    *(exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop),
)


def _fraction(node: Tree, kinds: Mapping[str, int]) -> int | None:
    """Return `_DOUBLE` or `_DECIMAL` for the type of an expression, or None if it is neither.

    The type is inferred from the parts of the expression.
    """
    if isinstance(node, exp.Column):
        return kinds.get(node.name.lower())
    if isinstance(node, exp.Literal):
        is_decimal = not node.is_string and "." in node.this and "e" not in node.this.lower()
        return _DECIMAL if is_decimal else _DOUBLE if not node.is_string and not node.this.isdigit() else None
    if isinstance(node, exp.Cast):
        return _DOUBLE if node.to.this in exp.DataType.FLOAT_TYPES else None
    if isinstance(node, _RETURN_DOUBLES) or _is_epoch(node):
        return _DOUBLE
    if isinstance(node, exp.IntDiv):
        return _DOUBLE if any(_fraction(part, kinds) for part in (node.this, node.expression)) else None
    if isinstance(node, exp.Round | exp.Floor | exp.Ceil) and not node.args.get("decimals"):
        return None
    return max((kind for part in _parts(node) if (kind := _fraction(part, kinds)) is not None), default=None)


def _parts(node: Tree) -> list[Tree]:
    """Return the parts of an expression that determine its type."""
    if isinstance(node, exp.Window | exp.Filter | exp.Paren | exp.Neg | exp.Abs | exp.AggFunc | exp.Round):
        return [node.this]
    if isinstance(node, exp.Subquery):
        return [selected.unalias() for selected in node.selects]
    if isinstance(node, exp.If):
        return [part for part in (node.args["true"], node.args.get("false")) if part is not None]
    if isinstance(node, exp.Case):
        results = [branch.args["true"] for branch in node.args["ifs"]] + [node.args.get("default")]
        return [branch for branch in results if branch is not None]
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Mod | exp.Coalesce | exp.Greatest | exp.Least | exp.Nullif):
        return [part for part in (node.this, node.expression, *node.expressions) if part is not None]
    return []


def orders_of_groups(tree: Tree) -> None:
    """Move the ORDER BY of a grouped query with a window, such as `… GROUP BY a ORDER BY sum(b)`, outside.

    The rest of the query becomes a subquery, which also computes the aggregates of the ORDER BY. Spark does not find an
    aggregate in the ORDER BY of a query with a window.
    """
    for select in list(tree.find_all(exp.Select)):
        order = select.args.get("order")
        if (
            not order
            or not select.args.get("group")
            or select.args.get("distinct")
            or not _is_own(select, exp.Window, select.expressions)
        ):
            continue
        if _is_own(select, exp.AggFunc, order.expressions) and all(
            column.alias_or_name for column in select.expressions
        ):
            _order_outside(select, order)


def _order_outside(select: Tree, order: Tree) -> None:
    """Change `SELECT … ORDER BY …` into `SELECT … FROM (SELECT …, <order terms>) ORDER BY …`, in place."""
    outside = ("order", "limit", "offset", "with", "with_")
    inner, names = select.copy(), [column.alias_or_name for column in select.expressions]
    for part in outside:
        inner.set(part, None)
    for number, term in enumerate(order.expressions):
        name = _shown_as(select, term.this)
        if name is None:
            name = f"_order_{number}"
            inner.append("expressions", exp.alias_(term.this.copy(), name, quoted=True))
        if not isinstance(term.this, exp.Literal):
            term.set("this", exp.column(name, quoted=True))
    outer = exp.select(*(exp.column(name, quoted=True) for name in names)).from_(inner.subquery("_groups"))
    for part in set(select.args) - set(outside):
        select.set(part, None)
    for part, value in outer.args.items():
        if value:
            select.set(part, value)


def _shown_as(select: Tree, term: Tree) -> str | None:
    """Return the name of the query's result column that equals a term of its ORDER BY, or None if no column does.

    A column number is returned unchanged.
    """
    if isinstance(term, exp.Literal):
        return term.this
    for column in select.expressions if isinstance(term, exp.Column) else ():
        if column.unalias() == term or (not term.table and column.alias.lower() == term.name.lower()):
            return column.alias_or_name
    return None


def _is_own(select: Tree, kind: type, parts: Collection[Tree]) -> bool:
    """Return whether one of these parts of a query contains a node of this kind outside subqueries."""
    return any(node.find_ancestor(exp.Select) is select for part in parts for node in part.find_all(kind))


RULES: tuple[Callable[[Tree], None], ...] = (
    write_out_windows,
    decimals_as_doubles,
    materialized_ctes,
    wide_integers,
    zero_divisors,
    whole_epochs,
    backslashes_in_like,
    orders_of_groups,
)
