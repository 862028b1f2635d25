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

import duckdb

from pipelines.base import database
from pipelines.base.datafiles import rule_rows
from pipelines.lake.publish.user_tables import Row, WrongTable, content_of, read_told
from pipelines.models.catalog import Added, Catalog, load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.sqltext import quoted

OP_FORMULAS = "op_formulas.csv"
MOST = 10_000  # rows: every command reads them, and a million took it 50 s
COLUMNS = ("op", "name_pattern", "formula", "family", "owns_below")
_KINDS, _PATTERNS = "op_kinds", "op_patterns"
_FLAGS = {"true": "true", "false": "false", None: "false"}

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
    try:
        rows = [] if _is_long(path) else read_told(path, COLUMNS, needed=("formula",))
    except WrongTable as error:
        raise CatalogError(str(error)) from None
    if len(rows) > MOST or _is_long(path):
        raise CatalogError(f"{path}: more than {MOST:,} rows; one row with a name_pattern stands for many names")
    families = _families()
    first: dict[tuple[str, str], int] = {}
    found = []
    for line, given in rows:
        column, name = _named(path, line, given)
        if column == "name_pattern":
            _check_pattern(path, line, name)
        if (before := first.setdefault((column, name), line)) != line:
            raise CatalogError(f"{path}:{line}: {column} {name!r} was in line {before} already; keep one of them")
        found.append(_formula(path, line, given, families))
    return found


def _is_long(path: Path) -> bool:
    """Returns whether a file has so many lines that it is not even read."""
    return content_of(path).count(b"\n") > 2 * MOST


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


def _check_pattern(path: Path, line: int, pattern: str) -> None:
    """Raises CatalogError for a pattern that DuckDB cannot use. Its expressions (RE2) take time in proportion to the name."""
    try:
        with database.scratch() as con:
            fits_all = con.execute(f"SELECT regexp_matches('', {quoted(pattern)})").fetchall() == [(True,)]
    except duckdb.Error as error:
        why = str(error).splitlines()[0].removeprefix("Invalid Input Error: ")
        raise CatalogError(
            f"{path}:{line}: name_pattern {pattern!r} is not a regular expression of DuckDB ({why}); correct it, or give the "
            "name as 'op'"
        ) from None
    if fits_all:
        raise CatalogError(
            f"{path}:{line}: name_pattern {pattern!r} fits every name; begin it with ^ and what names share"
        )


def _formula(path: Path, line: int, given: Row, families: dict[str, str]) -> Formula:
    formula, family, owns = given["formula"], given["family"], given["owns_below"]
    if formula not in families:
        told = f"formula {formula!r} is not known" if formula else "'formula' is empty"
        raise CatalogError(f"{path}:{line}: {told}; known are {', '.join(sorted(families))}")
    if family is not None and family not in families.values():
        known = ", ".join(sorted(set(families.values())))
        raise CatalogError(
            f"{path}:{line}: family {family!r} is not known; known are {known}; empty: that of the formula"
        )
    flag = owns.lower() if owns else None
    if flag not in _FLAGS or (given["name_pattern"] and flag == "true"):
        what = "only for a row with 'op'" if flag in _FLAGS else "neither true nor false"
        raise CatalogError(f"{path}:{line}: owns_below {owns!r} is {what}; leave it empty for false")
    return given["op"], given["name_pattern"], formula, family or families[formula], _FLAGS[flag]


def _families() -> dict[str, str]:
    """Returns each formula with the family of its first shipped row: every formula has one."""
    rows = [*rule_rows(_KINDS), *rule_rows(_PATTERNS)]
    return {row["formula"]: row["family"] for row in reversed(rows)}
