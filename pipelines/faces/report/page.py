"""The page of a report, assembled from its sections; templates/ contains its HTML and style."""

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
"""Environment variable: the address of docs/. If it is set, the page links to docs/."""


def _docs(page: str) -> str:
    """Return the address of a page of docs/, or "" if DOCS is not set.

    An address that ends in a slash is a site built from docs/.
    """
    base = os.environ.get(DOCS, "")
    return f"{base}{page.removesuffix('.md')}/" if base.endswith("/") else f"{base}/{page}" if base else ""


def _shown(value: Any) -> Any:
    """Return a text with control characters replaced, before Jinja escapes it, or any other value unchanged."""
    return visible(value) if type(value) is str else value


_TEMPLATES = Environment(
    loader=PackageLoader(__package__ or "", "templates"), autoescape=True, finalize=_shown, undefined=StrictUndefined
)
_TEMPLATES.globals.update(in_words=in_words, docs_address=_docs)


def page(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """Return the page of a subject as HTML, from the tables in `con` (see subject.TABLES and CAPTURE_TABLES)."""
    # The section about stragglers, which delay all ranks, precedes the sections about one rank.
    many = len(subject.traces) > 1
    order = (verdict_of, hangs, *((stragglers, *_OF_A_RANK) if many else (*_OF_A_RANK, stragglers)), quality)
    sections = [result for section in order if (result := section(con, subject))]
    return render(head(con, subject), sections)


def render(head: dict[str, Any], sections: Sequence[Section]) -> str:
    """Return the page as HTML. `head` has `title`, `kind`, `facts` and optionally `caveats` (see head.py)."""
    return _TEMPLATES.get_template("page.html").render(head=head, sections=sections)
