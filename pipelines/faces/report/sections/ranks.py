"""Section on stragglers: a comparison of the ranks of a capture, and which ranks the other ranks wait for."""

from __future__ import annotations

import duckdb

from pipelines.base.units import count, percent, share, time
from pipelines.faces.report.blocks import (
    Block,
    Column,
    Section,
    figure,
    heading,
    missing,
    more,
    section,
    table,
    verdict,
)
from pipelines.faces.report.formats import words
from pipelines.faces.report.subject import Subject
from pipelines.fleet.collectives.evidence import evidence_in_words
from pipelines.fleet.heat_map import METRICS, rank_step_heat_map
from pipelines.fleet.stragglers import Stragglers, stragglers_of

_SHOWN = 64


def stragglers(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section with the verdict, the ranks, their groups and the heat map of ranks by steps."""
    title = "Stragglers"
    if subject.capture_id is None or len(subject.traces) < 2:
        return section("stragglers", title, missing("there is only one rank, so nobody waits for another"))
    result = stragglers_of(con, subject.capture_id)
    why = "no step has a time: there are no profiler steps"
    body = [_verdict(result), figure(rank_map_svg(result, "ranks by steps"), why)]
    if result.ranks:
        body.append(table("straggler_ranks", _RANKS, result.ranks[:_SHOWN]))
        body += more(result.ranks, _SHOWN, "ranks in table straggler_ranks")
    if result.groups:
        body += [heading("groups of ranks"), table("straggler_groups", _GROUPS, result.groups[:_SHOWN])]
        body += more(result.groups, _SHOWN, "groups in table straggler_groups")
    note = "In a collective everyone waits for the last rank: its kernel is the shortest, the victim's the longest."
    if result.matched_by:
        evidence = evidence_in_words(list(result.matched_by))
        note = f"{note} {evidence[:1].upper()}{evidence[1:]}."
    return section("stragglers", title, body, note=note)


_RANKS = [
    *(Column("rank", "rank", count), Column("wait_ns", "waits", time)),
    *(Column("caused_wait_ns", "causes waiting", time), Column("caused_percent", "share", percent)),
    Column("root_percent", "goes back to it", percent),
    Column("late_ns", "late", time),
    *(Column("marginal_ns", "gain if fixed", time), Column("marginal_percent", "of the span", percent)),
    *(Column("n_last", "last", count), Column("n_collectives", "of collectives", count)),
    Column("last_percent", "share", percent),
    Column("is_straggler", "straggler", lambda value: "yes" if value else "no"),
]
_GROUPS = [
    *(Column("role", "role", words), Column("group_name", "group", words), Column("n_ranks", "ranks", count)),
    *(Column("wait_ns", "wait", time), Column("caused_wait_ns", "cause waiting", time)),
    *(Column("caused_percent", "share", percent), Column("worst_rank", "worst rank", count)),
]


def rank_map_svg(found: Stragglers, title: str) -> str | None:
    """Return SVG of ranks by steps with the first of METRICS that has values, or None if no cell has a value."""
    for metric in METRICS:
        if any(cell[metric] is not None for cell in found.cells):
            cells, which = found.drawn()
            title = f"{title}; {which}" if which else title
            return rank_step_heat_map(title, cells, metric, frozenset(found.stragglers))
    return None


def _verdict(stragglers: Stragglers) -> Block:
    if not stragglers.ranks:
        return missing("no collective could be matched on all ranks, so who waits for whom is unknown (see Quality)")
    if stragglers.agreement is None:
        return missing("clocks are not aligned, so the culprits are uncertain and no straggler is named")
    agreed = f"durations and clocks name the same culprit in {share(stragglers.agreement)} of the collectives"
    if stragglers.culprit_uncertain:
        return verdict(f"culprits uncertain: {agreed}")
    names = ", ".join(f"rank {rank}" for rank in stragglers.stragglers)
    return verdict(f"; {agreed}", f"straggler: {names}" if names else "no straggler")
