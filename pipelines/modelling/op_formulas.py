"""The work of a batch's operator calls, computed once for each distinct name with arguments."""

from __future__ import annotations

import json
from typing import Any

import duckdb

from pipelines.modelling.formulas import Formulas, work_of
from pipelines.modelling.work import NotModelled
from pipelines.models.python_tables import create_table, input_table, insert_columns, python_model
from pipelines.models.rule_functions import first_rule
from pipelines.models.sqltext import row

WORK_COLUMNS = (
    ("family", "VARCHAR", "Family of the formula; NULL without a formula."),
    ("dtype", "VARCHAR", "Type that determines the peak; NULL without a model or for an unknown type."),
    ("flops_matrix", "BIGINT", "Matrix operations; NULL without a model."),
    ("flops_uncausal", "BIGINT", "The same without a causal mask; NULL without a model."),
    ("flops_vector", "BIGINT", "Other operations; NULL without a model, or if only the code of the kernel shows it."),
    ("bytes", "BIGINT", "Minimum traffic, bytes; NULL without a model, or if the shapes do not determine it."),
    ("not_modelled", "VARCHAR", "Why there is no model; NULL if there is one."),
)
_LARGEST = 2**63 - 1


@python_model(
    "_op_formulas",
    layer="modelling",
    doc="One row: a name and arguments of operators, with the work that they require.",
    columns=(("shape_id", "BIGINT", "Number of the name and arguments in _op_calls."), *WORK_COLUMNS),
    reads=("_op_calls", "op_kinds", "op_patterns", "thresholds"),
    checks=("unique(shape_id)",),
)
def op_formulas(con: duckdb.DuckDBPyConnection) -> None:
    """Create table `_op_formulas`, with the work of each shape_id of `_op_calls`, or the reason why it is unknown."""
    create_table(con, "_op_formulas")
    calls = con.execute("SELECT DISTINCT shape_id, op, dims, types, concrete FROM _op_calls ORDER BY 1").fetchall()
    formulas = _formulas_of(con)
    rows = [(shape_id, *work_columns(*call, formulas=formulas)) for shape_id, *call in calls]
    if rows:  # insert as columns, because DuckDB took 0.7 s to parse 32,000 rows as SQL text
        names = ("shape_id", *(name for name, _, _ in WORK_COLUMNS))
        insert_columns(con, "_op_formulas", dict(zip(names, zip(*rows, strict=True), strict=True)))


@input_table(
    "_staged_operator_work",
    layer="ingest",
    doc="One row: a call that a census counted, with the work that it requires.",
    columns=(
        ("op", "VARCHAR", "Name of the operator."),
        ("dims", "VARCHAR", "Shapes of its arguments, JSON."),
        ("types", "VARCHAR", "Their types, JSON."),
        ("concrete", "VARCHAR", "Their literals, JSON."),
        *WORK_COLUMNS,
    ),
)
def census_work(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_staged_operator_work` with the work of the calls of `_staged_span_sample_operators`."""
    create_table(con, "_staged_operator_work")
    calls = con.execute("SELECT DISTINCT op, dims, types, concrete FROM _staged_span_sample_operators").fetchall()
    if calls:
        rows = (row((*call, *work_columns(*call))) for call in calls)
        con.execute(f"INSERT INTO _staged_operator_work VALUES {', '.join(rows)}")


def _formulas_of(con: duckdb.DuckDBPyConnection) -> Formulas:
    """Return the formulas of the operators in `_op_calls` according to the rule tables in `con`.

    The user's rows come first in these tables (create_rules). DuckDB matches the patterns, because Python's `re` may
    take exponential time on a name that almost matches.
    """
    kinds = con.execute("SELECT op, family, formula FROM op_kinds").fetchall()
    kind_by_op = {op: (family, formula) for op, family, formula in kinds}
    first_match = first_rule(con, "op_patterns", {"op": "name_pattern"}, "rowid")
    matches = con.execute(
        f"SELECT o.op, p.family, p.formula FROM (SELECT op, {first_match} AS rule FROM (SELECT DISTINCT op FROM _op_calls)) AS o "
        "JOIN op_patterns AS p ON p.rowid = o.rule"
    ).fetchall()
    for op, family, formula in matches:
        kind_by_op.setdefault(op, (family, formula))
    return Formulas(kind_by_op, ())


def work_columns(
    op: str, dims: str | None, types: str | None, concrete: str | None, formulas: Formulas | None = None
) -> tuple[Any, ...]:
    """Return family, dtype, flops_matrix, flops_uncausal, flops_vector, bytes and not_modelled of a call.

    The arguments are JSON texts. `formulas`: by default the shipped formulas.
    """
    try:
        work = work_of(op, *map(_parsed, (dims, types, concrete)), formulas=formulas)
    except (ValueError, RecursionError):  # invalid JSON, or nested too deeply
        work = NotModelled("bad_args")
    if not isinstance(work, NotModelled) and not all(
        map(_is_size, (work.flops_matrix, work.flops_uncausal, work.flops_vector, work.bytes))
    ):
        work = NotModelled("bad_args")  # no tensor is that large, so the sizes are corrupt
    if isinstance(work, NotModelled):
        return (*(None,) * 6, work.reason)
    return work.kind, work.dtype, work.flops_matrix, work.flops_uncausal, work.flops_vector, work.bytes, None


def _is_size(n: Any) -> bool:
    return n is None or (isinstance(n, int) and 0 <= n <= _LARGEST)


def _parsed(text: str | None) -> list[Any] | None:
    """Return the list in a JSON text, or None if the text is None or not a list. Raise ValueError for invalid JSON."""
    value = None if text is None else json.loads(text)
    return value if isinstance(value, list) else None
