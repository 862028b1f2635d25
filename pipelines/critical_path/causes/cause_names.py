"""The names of a trace that identify a cause, by the rules in `cause_rules`. Each distinct name is matched once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from pipelines.models.python_tables import create_table, python_model
from pipelines.models.sqltext import quoted

_ANNOTATIONS, _FRAMES, _CALLS = ("operator", "annotation"), ("frame",), ("call",)


@dataclass(frozen=True)
class CauseRule:
    """A row of `cause_rules`. Of several rules that match a name, the rule with the lowest rank wins.

    `takes_gpu_work` is whether the cause includes the GPU work that is launched inside the matching event.
    """

    cause: str
    rank: int
    takes_gpu_work: bool


def cause_rules(con: duckdb.DuckDBPyConnection) -> list[CauseRule]:
    """Return the rules in order of their rank. A name's `rule_no` is an index into this list."""
    rows = con.execute(f"SELECT cause, rule_rank, takes_gpu_work FROM {_RULES}").fetchall()
    return [CauseRule(*row) for row in rows]


_RULES = "cause_rules ORDER BY rule_rank, rule"


@python_model(
    "_cause_names",
    layer="critical_path",
    doc="One row: a name of a trace's host events that indicates a cause.",
    columns=(
        ("name_no", "BIGINT", "The name, in _event_names."),
        ("rule_no", "BIGINT", "The first rule in cause_rules that matches the name: its index by rank, from 0."),
    ),
    reads=("_event_names", "cause_rules"),
    checks=("unique(name_no)",),
)
def cause_names(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_cause_names`.

    Each pattern is a constant in the SQL, so that DuckDB compiles it once instead of once per name.
    """
    create_table(con, "_cause_names")
    patterns = con.execute(f"SELECT annotation_pattern, frame_pattern, call_pattern FROM {_RULES}").fetchall()
    for kinds, column in zip((_ANNOTATIONS, _FRAMES, _CALLS), zip(*patterns, strict=True), strict=True):
        fits = _first_that_fits(column)
        if fits:
            listed = ", ".join(map(quoted, kinds))
            con.execute(
                f"INSERT INTO _cause_names SELECT name_no, rule_no FROM (SELECT name_no, {fits} AS rule_no "
                f"FROM _event_names WHERE kind IN ({listed})) WHERE rule_no IS NOT NULL"
            )


def _first_that_fits(patterns: Sequence[str | None]) -> str:
    """Return a SQL CASE that evaluates to the index of the first pattern that matches column `name`, or to NULL.

    The returned text is empty if all patterns are empty or None.
    """
    cases = [
        f"WHEN regexp_matches(name, {quoted(pattern)}) THEN {index}"
        for index, pattern in enumerate(patterns)
        if pattern
    ]
    return f"CASE {' '.join(cases)} END" if cases else ""
