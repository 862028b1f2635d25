"""Compares two captures or traces by name and shape: sql/fleet/_comparison.sql with its two sides filled in."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from pipelines.models.catalog import load_catalog
from pipelines.models.python_tables import create_table, given_table
from pipelines.models.sqltext import quoted, row

TABLES = ("traces", "profiler_steps", "ops_by_shape", "capture_ranks")  # tables and views that a connection must have
FIRST, EVERY = "first", "all"


class CompareError(ValueError):
    """What was asked for is not in the lake; the message says what is."""


@dataclass(frozen=True)
class Difference:
    """A name (and shape) on both sides; times in ns. `change` is of counts: added, deleted, increased, decreased, unchanged."""

    device: str
    cat: str
    name: str
    input_dims: str | None
    input_types: str | None
    control_n: int
    test_n: int
    diff_n: int
    control_ns: int
    test_ns: int
    diff_ns: int
    change: str


def compare(
    con: duckdb.DuckDBPyConnection,
    control: str,
    test: str,
    ranks: int | str = FIRST,
    steps: int | str = FIRST,
    by_shape: bool = True,
) -> list[Difference]:
    """Compare two captures or traces, by id or its beginning; the largest change of time comes first.

    `ranks`, `steps`: a number, `first` (the lowest of each side, as in HTA) or `all`; traces without steps are compared
    as a whole. `con` has TABLES. Raises CompareError.
    """
    sides = (side_of(con, name, ranks, steps) for name in (control, test))
    return compare_sides(con, *sides, by_shape=by_shape)


Side = dict[str, int | None]
"""The traces of a side, and the step of each that is compared; None for the whole trace."""


def side_of(con: duckdb.DuckDBPyConnection, name: str, ranks: int | str = FIRST, steps: int | str = FIRST) -> Side:
    """The side with this id or beginning of an id; `con` has TABLES, ops_by_shape not needed. Raises CompareError."""
    return {trace_id: _step(con, trace_id, steps) for trace_id in _traces(con, name, ranks)}


@given_table(
    "compared",
    layer="fleet",
    doc="One row: a trace of a side of a comparison.",
    columns=(
        ("side", "VARCHAR", "control or test."),
        ("trace_id", "VARCHAR", "The trace."),
        ("step", "BIGINT", "The step that is compared; NULL for all of the trace."),
        ("every_step", "BOOLEAN", "All of the trace is compared."),
        ("by_shape", "BOOLEAN", "Shapes are told apart."),
    ),
)
def compare_sides(con: duckdb.DuckDBPyConnection, control: Side, test: Side, by_shape: bool = True) -> list[Difference]:
    """Compare two sides by ops_by_shape in `con`; the largest change of time comes first."""
    create_table(con, "compared", "OR REPLACE TEMP TABLE")
    for side, traces in (("control", control), ("test", test)):
        for trace_id, step in traces.items():
            con.execute(f"INSERT INTO compared VALUES {row([side, trace_id, step, step is None, by_shape])}")
    query = f"SELECT * FROM ({load_catalog().models['_comparison'].sql}) ORDER BY abs(diff_ns) DESC, device, cat, name, input_dims, input_types"
    return [Difference(*found) for found in con.execute(query).fetchall()]


def _traces(con: duckdb.DuckDBPyConnection, name: str, ranks: int | str) -> list[str]:
    """Returns the traces of a side: of a capture, those of the requested ranks."""
    members = con.execute(
        "SELECT capture_id, rank, trace_id FROM capture_ranks "
        f"WHERE left_out_reason IS NULL AND starts_with(capture_id, {quoted(name)}) ORDER BY rank, trace_id"
    ).fetchall()
    captures = {capture for capture, _, _ in members}
    traces = con.execute(f"SELECT trace_id FROM traces WHERE starts_with(trace_id, {quoted(name)})").fetchall()
    if len(captures) + len(traces) != 1:
        found = sorted([*captures, *(trace for (trace,) in traces)])
        raise CompareError(
            f"{name!r} is a prefix of {len(found)} captures and traces: {', '.join(found[:10])}"
            if found
            else f"no capture or trace id starts with {name!r}"
        )
    if traces:
        return [traces[0][0]]
    numbers = [rank for _, rank, _ in members]
    wanted = set(numbers) if ranks == EVERY else {numbers[0] if ranks == FIRST else ranks}
    if not wanted <= set(numbers):
        raise CompareError(f"capture {members[0][0]} has no rank {ranks}; it has {', '.join(map(str, numbers))}")
    return [trace for _, rank, trace in members if rank in wanted]


def _step(con: duckdb.DuckDBPyConnection, trace_id: str, steps: int | str) -> int | None:
    """Returns the step of a trace that is compared; None for the whole trace."""
    query = f"SELECT step FROM profiler_steps WHERE trace_id = {quoted(trace_id)} ORDER BY step"
    known = [number for (number,) in con.execute(query).fetchall()]
    if steps == EVERY or (steps == FIRST and not known):
        return None
    if steps == FIRST:
        return known[0]
    if steps not in known:
        raise CompareError(f"trace {trace_id} has no step {steps}; it has {', '.join(map(str, known)) or 'none'}")
    return int(steps)
