"""The user's operator formulas, from `op_formulas.csv` in the lake's folder. They extend op_kinds and op_patterns.

The file has the columns of these shipped tables: `op` (a name) or `name_pattern` (a regular expression of DuckDB),
`formula`, and optionally `family` and `owns_below`. The rows are part of the version of every table that reads
formulas. If the file changes, these tables are therefore recomputed.
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
# The number of rows is limited, because every command reads the file, and a million rows took 50 s.
_TABLE = UserTable(
    {"op": TEXT, "name_pattern": PATTERN, "formula": NEEDED, "family": TEXT, "owns_below": FLAG}, most=10_000
)
COLUMNS = tuple(_TABLE.columns)
_KINDS, _PATTERNS = "op_kinds", "op_patterns"

Formula = tuple[str | None, ...]
"""A row in the order of COLUMNS."""


def catalog_of(path: Path) -> Catalog:
    """Return the models with the formulas of the file. An unusable file raises only if a table needs formulas."""
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
    """Return the models with these formulas, or the shipped models if there are none."""
    return _with_rows(tuple(formulas)) if formulas else load_catalog()


@lru_cache(maxsize=64)
def _with_rows(formulas: tuple[Formula, ...]) -> Catalog:
    kinds = tuple((op, formula, family, owns) for op, _, formula, family, owns in formulas if op)
    patterns = tuple((name, formula, family, OP_FORMULAS) for _, name, formula, family, _ in formulas if name)
    added = {_KINDS: Added(repr(kinds).encode(), kinds), _PATTERNS: Added(repr(patterns).encode(), patterns)}
    return load_catalog().with_added({table: rows for table, rows in added.items() if rows.rows})


def read_formulas(path: Path) -> list[Formula]:
    """Return the rows of a file of formulas with defaults filled in, or [] if the file does not exist.

    Raise CatalogError with the file, the line, the column and the remedy.
    """
    families = _families()
    first: dict[tuple[str, str], int] = {}
    formulas = []
    for line, fields in _TABLE.rows(path):
        column, name = _named(path, line, fields)
        if (before := first.setdefault((column, name), line)) != line:
            raise CatalogError(f"{path}:{line}: {column} {name!r} was in line {before} already; keep one of them")
        formulas.append(_formula(path, line, fields, families))
    return formulas


def write_formulas(path: Path, formulas: Sequence[Formula]) -> None:
    """Write formulas that were read from another lake as `op_formulas.csv`, unless there are none."""
    if formulas:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *(_as_read(formula) for formula in formulas)])


def _as_read(formula: Formula) -> tuple[str | None, ...]:
    """Return a formula as a user writes it.

    If it has a pattern, `owns_below` is None, because a user leaves it empty.
    """
    return formula if formula[0] else (*formula[:-1], None)


def _named(path: Path, line: int, fields: Row) -> tuple[str, str]:
    """Return which of the columns `op` and `name_pattern` is filled, and its value.

    Raise CatalogError unless exactly one of them is filled.
    """
    op, pattern = fields["op"], fields["name_pattern"]
    if (op is None) == (pattern is None):
        raise CatalogError(
            f"{path}:{line}: {'both' if op else 'neither'} of 'op' and 'name_pattern'; give the name of an operator or "
            "a regular expression for several"
        )
    return ("op", op or "") if pattern is None else ("name_pattern", pattern)


def _formula(path: Path, line: int, fields: Row, families: dict[str, str]) -> Formula:
    formula, family, owns = fields["formula"], fields["family"], fields["owns_below"]
    if formula not in families:
        choices = ", ".join(sorted(families))
        raise CatalogError(f"{path}:{line}: formula {formula!r} is unknown; choose one of {choices}")
    if family is not None and family not in families.values():
        choices = ", ".join(sorted(set(families.values())))
        raise CatalogError(
            f"{path}:{line}: family {family!r} is unknown; choose one of {choices}; empty: that of the formula"
        )
    if fields["name_pattern"] and owns == "true":
        raise CatalogError(f"{path}:{line}: owns_below 'true' is only for a row with 'op'; leave it empty for false")
    return fields["op"], fields["name_pattern"], formula, family or families[formula], owns


def _families() -> dict[str, str]:
    """Return the family of each formula's first shipped row."""
    rows = [*rule_rows(_KINDS), *rule_rows(_PATTERNS)]
    return {row["formula"]: row["family"] for row in reversed(rows)}
