"""Assembles the sections of a page; its HTML and style are in templates/."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import duckdb
from jinja2 import Environment, PackageLoader, StrictUndefined

from pipelines.base.foreign_text import visible
from pipelines.faces.report.blocks import Section
from pipelines.faces.report.sections.collectives import collectives
from pipelines.faces.report.sections.graphs import graphs
from pipelines.faces.report.sections.hangs import hangs
from pipelines.faces.report.sections.head import head, quality
from pipelines.faces.report.sections.kernels import kernels
from pipelines.faces.report.sections.launches import launches
from pipelines.faces.report.sections.measured import measured
from pipelines.faces.report.sections.memory import memory
from pipelines.faces.report.sections.ranks import stragglers
from pipelines.faces.report.sections.serving import serving
from pipelines.faces.report.sections.snapshots import snapshots
from pipelines.faces.report.sections.spans import spans, without_time
from pipelines.faces.report.sections.steps import steps
from pipelines.faces.report.sections.times import breakdown, critical_path
from pipelines.faces.report.sections.utilization import utilization
from pipelines.faces.report.sections.verdict import verdict_of
from pipelines.faces.report.subject import Subject
from pipelines.faces.words import in_words

_OF_A_RANK = (
    breakdown,
    steps,
    serving,
    kernels,
    graphs,
    critical_path,
    launches,
    utilization,
    without_time,
    measured,
    collectives,
    memory,
    snapshots,
    spans,
)
DOCS = "TRACELAKE_DOCS"
"""Environment variable: the address of docs/, to which the page then links."""


def _docs(page: str) -> str:
    """Returns the address of a page of docs/: of a site built from it if the address ends in a slash; "" if unknown."""
    base = os.environ.get(DOCS, "")
    return f"{base}{page.removesuffix('.md')}/" if base.endswith("/") else f"{base}/{page}" if base else ""


def _shown(value: Any) -> Any:
    """Control characters are replaced before Jinja escapes a text."""
    return visible(value) if type(value) is str else value


_TEMPLATES = Environment(
    loader=PackageLoader(__package__ or "", "templates"), autoescape=True, finalize=_shown, undefined=StrictUndefined
)
_TEMPLATES.globals.update(in_words=in_words, docs_address=_docs)


def page(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """Returns the page of a subject from the tables in `con` (see subject.TABLES and CAPTURE_TABLES)."""
    # What holds all ranks up comes before what one of them does.
    many = len(subject.traces) > 1
    order = (verdict_of, hangs, *((stragglers, *_OF_A_RANK) if many else (*_OF_A_RANK, stragglers)), quality)
    sections = [found for section in order if (found := section(con, subject))]
    return render(head(con, subject), sections)


def render(head: dict[str, Any], sections: Sequence[Section]) -> str:
    """Returns the page of sections under a head: `title`, `kind`, `facts` and, if there are any, `caveats` (see head.py)."""
    return _TEMPLATES.get_template("page.html").render(head=head, sections=sections)
