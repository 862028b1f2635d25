"""A user's own formulas of operators: `op_formulas.csv` in the lake's folder, beside the shipped rows of op_kinds and op_patterns.

Columns as there: `op` (a name) or `name_pattern` (a regular expression, as DuckDB has them), `formula`, and optionally `family` and
`owns_below`.
They are part of the version of every table that reads formulas, so these are computed again when the file changes.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pipelines.base.datafiles import rule_rows
from pipelines.lake.publish.user_tables import FLAG, NEEDED, PATTERN, TEXT, Row, UserTable, content_of
from pipelines.models.catalog import Added, Catalog, load_catalog
from pipelines.models.errors import CatalogError

OP_FORMULAS = "op_formulas.csv"
# Every command reads them, and a million rows took it 50 s.
_TABLE = UserTable(
    {"op": TEXT, "name_pattern": PATTERN, "formula": NEEDED, "family": TEXT, "owns_below": FLAG}, most=10_000
)
COLUMNS = tuple(_TABLE.columns)
_KINDS, _PATTERNS = "op_kinds", "op_patterns"

Formula = tuple[str | None, ...]
"""A row in the order of COLUMNS."""


def catalog_of(path: Path) -> Catalog:
    """Returns the models with the formulas of such a file. One that cannot be used fails where a table needs formulas."""
    content = content_of(path)
    return _with_content(path, content) if content or os.path.lexists(path) else load_catalog()


@lru_cache(maxsize=64)
def _with_content(path: Path, content: bytes) -> Catalog:
    try:
        return catalog_with(read_formulas(path))
    except CatalogError as error:
        added = Added(content + b" refused", error=str(error))
        return load_catalog().with_added({_KINDS: added, _PATTERNS: added})


def catalog_with(formulas: Sequence[Formula]) -> Catalog:
    """Returns the models with these formulas; those as shipped if there are none."""
    return _with_rows(tuple(formulas)) if formulas else load_catalog()


@lru_cache(maxsize=64)
def _with_rows(formulas: tuple[Formula, ...]) -> Catalog:
    kinds = tuple((op, formula, family, owns) for op, _, formula, family, owns in formulas if op)
    patterns = tuple((name, formula, family, OP_FORMULAS) for _, name, formula, family, _ in formulas if name)
    added = {_KINDS: Added(repr(kinds).encode(), kinds), _PATTERNS: Added(repr(patterns).encode(), patterns)}
    return load_catalog().with_added({table: one for table, one in added.items() if one.rows})


def read_formulas(path: Path) -> list[Formula]:
    """Returns the rows of a file of formulas, with what they leave out filled in; none if there is no file.

    Raises CatalogError with file, line, column and what to do.
    """
    families = _families()
    first: dict[tuple[str, str], int] = {}
    found = []
    for line, given in _TABLE.rows(path):
        column, name = _named(path, line, given)
        if (before := first.setdefault((column, name), line)) != line:
            raise CatalogError(f"{path}:{line}: {column} {name!r} was in line {before} already; keep one of them")
        found.append(_formula(path, line, given, families))
    return found


def write_formulas(path: Path, formulas: Sequence[Formula]) -> None:
    """Write formulas that were read elsewhere as such a file; nothing if there are none."""
    if formulas:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *(_as_read(formula) for formula in formulas)])


def _as_read(formula: Formula) -> tuple[str | None, ...]:
    """What is left out of a row with a pattern must be empty in it."""
    return formula if formula[0] else (*formula[:-1], None)


def _named(path: Path, line: int, given: Row) -> tuple[str, str]:
    """Returns the column that says whose formula it is, and what it says."""
    op, pattern = given["op"], given["name_pattern"]
    if (op is None) == (pattern is None):
        raise CatalogError(
            f"{path}:{line}: {'both' if op else 'neither'} of 'op' and 'name_pattern'; give the name of an operator or "
            "a regular expression for several"
        )
    return ("op", op or "") if pattern is None else ("name_pattern", pattern)


def _formula(path: Path, line: int, given: Row, families: dict[str, str]) -> Formula:
    formula, family, owns = given["formula"], given["family"], given["owns_below"]
    if formula not in families:
        known = ", ".join(sorted(families))
        raise CatalogError(f"{path}:{line}: formula {formula!r} is not known; known are {known}")
    if family is not None and family not in families.values():
        known = ", ".join(sorted(set(families.values())))
        raise CatalogError(
            f"{path}:{line}: family {family!r} is not known; known are {known}; empty: that of the formula"
        )
    if given["name_pattern"] and owns == "true":
        raise CatalogError(f"{path}:{line}: owns_below 'true' is only for a row with 'op'; leave it empty for false")
    return given["op"], given["name_pattern"], formula, family or families[formula], owns


def _families() -> dict[str, str]:
    """Returns each formula with the family of its first shipped row: every formula has one."""
    rows = [*rule_rows(_KINDS), *rule_rows(_PATTERNS)]
    return {row["formula"]: row["family"] for row in reversed(rows)}
