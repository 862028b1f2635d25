"""Location of the SQL models and the rule tables: `sql/` in a checkout, `pipelines/_sql/` in an installed wheel."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any


def _sql_folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    installed = package / "_sql"  # setup.py puts it there, because other packages may also install a top-level `sql`
    return installed if installed.is_dir() else package.parent / "sql"


SQL_DIR = _sql_folder()


@cache
def thresholds() -> dict[str, str]:
    """Return the thresholds of inference by name, with values as SQL text (`sql/rules/thresholds.csv`)."""
    return {row["name"]: row["value"] for row in rule_rows("thresholds")}


def threshold(name: str) -> Any:
    """Return the value of a threshold: an int, or a float if it is written with a decimal point."""
    text = thresholds()[name]
    return float(text) if "." in text else int(text)


def rule_rows(table: str) -> list[dict[str, str]]:
    """Return the rows of a rule table (`sql/rules/<topic>/<table>.csv`) by column, as text."""
    lines = _rule_files()[table].read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@cache
def _rule_files() -> dict[str, Path]:
    return {path.stem: path for path in (SQL_DIR / "rules").rglob("*.csv")}
