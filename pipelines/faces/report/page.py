"""The page of a report, assembled from its sections. templates/ contains its HTML and style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.faces.report.blocks import Section
from pipelines.faces.report.macros import TEMPLATES
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
_OF_A_DIGEST = (breakdown, steps, critical_path)
"""The sections about one rank whose tables are in a digest (OF_TRACES in pipelines/lake/retain/digest_files.py)."""


def page(subject: Subject, notices: Sequence[str]) -> str:
    """Return the page of a subject as HTML, from the tables in its database (see subject.TABLES and CAPTURE_TABLES).

    `notices`: sentences about rows that are missing from these tables.
    """
    # The section about stragglers, which delay all ranks, precedes the sections about one rank.
    many = len(subject.traces) > 1
    of_rank = _OF_A_DIGEST if subject.is_digest else _OF_A_RANK
    order = (verdict_of, hangs, *((stragglers, *of_rank) if many else (*of_rank, stragglers)), quality)
    sections = [result for section in order if (result := section(subject))]
    about = head(subject)
    return render({**about, "caveats": [*about["caveats"], *notices]}, sections)


def render(head: dict[str, Any], sections: Sequence[Section]) -> str:
    """Return the page as HTML. `head` has `title`, `kind`, `facts` and optionally `caveats` (see head.py)."""
    return TEMPLATES.get_template("page.html").render(head=head, sections=sections)
