"""The formulas over the distinct calls of a batch: each name with equal arguments is worked out once."""

from __future__ import annotations

import json
from typing import Any

import duckdb

from pipelines.modelling.formulas import NotModelled, work_of
from pipelines.sqltext import row

WORK_COLUMNS = (
    "family VARCHAR, dtype VARCHAR, flops_matrix BIGINT, flops_uncausal BIGINT, flops_vector BIGINT, bytes BIGINT, "
    "not_modelled VARCHAR"
)
_LARGEST = 2**63 - 1


def op_formulas(con: duckdb.DuckDBPyConnection) -> None:
    """Create table `_op_formulas` (a row a shape_id of `_op_calls`): its work, or why there is none."""
    con.execute(f"CREATE OR REPLACE TABLE _op_formulas (shape_id BIGINT, {WORK_COLUMNS})")
    calls = con.execute("SELECT DISTINCT shape_id, op, dims, types, concrete FROM _op_calls ORDER BY 1").fetchall()
    rows = [row((shape_id, *work_columns(*call))) for shape_id, *call in calls]
    if rows:
        con.execute(f"INSERT INTO _op_formulas VALUES {', '.join(rows)}")


def work_columns(op: str, dims: str | None, types: str | None, concrete: str | None) -> tuple[Any, ...]:
    """family, dtype, flops_matrix, flops_uncausal, flops_vector, bytes, not_modelled of a call; arguments are JSON."""
    try:
        work = work_of(op, *map(_parsed, (dims, types, concrete)))
    except (ValueError, RecursionError):  # a text that begins as a list and is none
        work = NotModelled("bad_args")
    if not isinstance(work, NotModelled) and max(work.flops_uncausal, work.flops_vector, work.bytes or 0) > _LARGEST:
        work = NotModelled("bad_args")  # no tensors are that large: the sizes are broken
    if isinstance(work, NotModelled):
        return (*(None,) * 6, work.reason)
    return work.kind, work.dtype, work.flops_matrix, work.flops_uncausal, work.flops_vector, work.bytes, None


def _parsed(text: str | None) -> list[Any] | None:
    """The list in a JSON text; None if there is none."""
    value = None if text is None else json.loads(text)
    return value if isinstance(value, list) else None
