"""Tables of a page. templates/tables.toml lists them by the question that each answers."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from pipelines.faces.report.blocks import Column
from pipelines.faces.report.formats import FORMATS, format_of, shorten
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import Row, Subject


@dataclass(frozen=True)
class _Table:
    """An entry of tables.toml. The file documents the fields."""

    of: str
    columns: Sequence[Column]
    title: str = ""
    missing: str = ""
    top: int | None = None
    more: str = ""
    optional: Sequence[str] = ()
    short: int = 0


@cache
def _tables() -> dict[str, _Table]:
    text = files(__package__ or "").joinpath("templates/tables.toml").read_text(encoding="utf-8")
    return {question: _table(**entry) for question, entry in tomllib.loads(text).items()}


def _table(columns: list[list[str]], formats: dict[str, str] | None = None, **fields: Any) -> _Table:
    shows = {key: FORMATS[show] for key, show in (formats or {}).items()}
    shown = [Column(key, heading, shows.get(key) or format_of(key), *tooltip) for key, heading, *tooltip in columns]
    return _Table(columns=shown, **fields)


@cache
def _docs(table: str) -> dict[str, str]:
    from pipelines.models.catalog import load_catalog

    return {column.name: column.doc for column in load_catalog().models[table].columns}


def table(question: str, rows: Sequence[Row], title: str = "") -> Markup:
    """Return the table of a question with these rows, below its heading and above the number of rows that it omits.

    Headings of columns have the lake's documentation as tooltips. Rows with `suspect` are marked. Without rows, return the
    reason instead of the table, or nothing if tables.toml states no reason. `title`: the heading, if it is not in tables.toml.
    """
    spec = _tables()[question]
    if not rows and not spec.missing:
        return Markup()
    shown = rows[: spec.top]
    if spec.short:
        shorten(shown, spec.short)
    used = [c for c in spec.columns if c.key not in spec.optional or any(row[c.key] is not None for row in shown)]
    heading = macros.heading(title or spec.title) if title or spec.title else ""
    body = macros.table(spec.of, used, shown, _docs(spec.of)) if rows else macros.missing(spec.missing)
    return Markup().join((heading, body, macros.more(rows, spec.top, spec.more) if spec.more else ""))


def answer(subject: Subject, question: str, title: str = "") -> Markup:
    """Return the table of a question about the shown trace."""
    return table(question, subject.rows(question), title)
