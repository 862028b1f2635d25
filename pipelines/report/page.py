"""Assembles the sections of a page; its HTML and style are in templates/."""

from __future__ import annotations

from typing import Any

import duckdb
from jinja2 import Environment, PackageLoader, StrictUndefined

from pipelines.foreign_text import visible
from pipelines.report.collectives import collectives
from pipelines.report.hangs import hangs
from pipelines.report.head import head, quality
from pipelines.report.memory import memory
from pipelines.report.ranks import stragglers
from pipelines.report.spans import spans
from pipelines.report.subject import Subject
from pipelines.report.times import breakdown, critical_path
from pipelines.report.utilization import utilization

_SECTIONS = (hangs, breakdown, critical_path, spans, utilization, memory, collectives, stragglers, quality)


def _shown(value: Any) -> Any:
    """Control characters are replaced before Jinja escapes a text."""
    return visible(value) if type(value) is str else value


_TEMPLATES = Environment(
    loader=PackageLoader(__package__ or "", "templates"), autoescape=True, finalize=_shown, undefined=StrictUndefined
)


def page(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """Returns the page of a subject from the tables in `con` (see subject.TABLES and CAPTURE_TABLES)."""
    sections = [found for section in _SECTIONS if (found := section(con, subject))]
    return _TEMPLATES.get_template("page.html").render(head=head(con, subject), sections=sections)
