"""Section on stragglers: a comparison of the ranks of a capture, and which ranks the other ranks wait for."""

from __future__ import annotations

from markupsafe import Markup

from pipelines.base.units import share
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import ONLY_DIGEST, Subject
from pipelines.faces.report.tables import table
from pipelines.fleet.collectives.evidence import evidence_in_words
from pipelines.fleet.heat_map import METRICS, rank_step_heat_map
from pipelines.fleet.stragglers import Stragglers, stragglers_of


def stragglers(subject: Subject) -> Section:
    """Return the section with the verdict, the ranks, their groups and the heat map of ranks by steps."""
    title = "Stragglers"
    if subject.capture_id is None or len(subject.traces) < 2:
        return section("stragglers", title, macros.missing("there is only one rank, so no rank waits for another"))
    result = stragglers_of(subject.con, subject.capture_id)
    note = "In a collective everyone waits for the last rank: its kernel is the shortest, the victim's the longest."
    if result.matched_by:
        evidence = evidence_in_words(list(result.matched_by))
        note = f"{note} {evidence[:1].upper()}{evidence[1:]}."
    why_no_step = ONLY_DIGEST if subject.is_digest else "there are no profiler steps"
    return section(
        "stragglers",
        title,
        _verdict(result),
        macros.figure(rank_map_svg(result, "ranks by steps"), f"no step has a time: {why_no_step}"),
        table("straggler-ranks", result.ranks),
        table("straggler-groups", result.groups),
        note=note,
    )


def rank_map_svg(answer: Stragglers, title: str) -> str | None:
    """Return SVG of ranks by steps with the first of METRICS that has values, or None if no cell has a value."""
    for metric in METRICS:
        if any(cell[metric] is not None for cell in answer.cells):
            cells, which = answer.drawn()
            title = f"{title}; {which}" if which else title
            return rank_step_heat_map(title, cells, metric, frozenset(answer.stragglers))
    return None


def _verdict(stragglers: Stragglers) -> Markup:
    if not stragglers.ranks:
        return macros.missing(
            "no collective could be matched on all ranks, so who waits for whom is unknown (see Quality)"
        )
    if stragglers.agreement is None:
        return macros.missing("clocks are not aligned, so the culprits are uncertain and no straggler is named")
    agreed = f"durations and clocks name the same culprit in {share(stragglers.agreement)} of the collectives"
    if stragglers.culprit_uncertain:
        return macros.verdict(f"culprits uncertain: {agreed}")
    if stragglers.undetermined:
        agreed = f"{agreed}; {stragglers.undetermined}"
    return macros.verdict(f"; {agreed}", stragglers.named)
