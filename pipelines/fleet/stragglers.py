"""The ranks that others wait for in a capture. `tracelake stragglers` answers this from the tables of captures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import percent
from pipelines.fleet.collectives.evidence import evidence_of
from pipelines.models.sqltext import quoted

TABLES = (
    "captures",
    "capture_quality",
    "collectives",
    "clock_offsets",
    "straggler_ranks",
    "straggler_groups",
    "rank_steps",
)
DRAWN = 64
"""Maximum number of ranks in a chart."""
Row = dict[str, Any]

_RANKS = """
    SELECT s.rank, s.n_collectives, s.wait_ns, s.caused_wait_ns, s.caused_percent, s.late_ns, s.marginal_ns, s.marginal_percent,
        s.root_wait_ns, s.root_percent, s.n_last, s.last_percent, s.is_straggler, c.offset_ns, c.error_ns, c.refused_reason AS clock_refused
    FROM straggler_ranks AS s LEFT JOIN clock_offsets AS c USING (capture_id, rank)  -- a digest has no clocks
    WHERE capture_id = {capture}
    ORDER BY greatest(s.caused_wait_ns, coalesce(s.root_wait_ns, 0)) DESC, s.rank
"""
_GROUPS = """
    SELECT role, group_name, n_ranks, wait_ns, caused_wait_ns, caused_percent, marginal_ns, worst_rank, has_straggler
    FROM straggler_groups WHERE capture_id = {capture} ORDER BY role, caused_wait_ns DESC, group_name
"""
_CELLS = """
    SELECT step, rank, step_ns, compute_ns, n_collectives, wait_ns, caused_wait_ns, marginal_ns, last_percent
    FROM rank_steps WHERE capture_id = {capture} ORDER BY step NULLS LAST, rank
"""
_QUALITY = "SELECT check_name, severity, n, detail FROM capture_quality WHERE capture_id = {capture} ORDER BY ALL"
# bool_and, because a rank without an aligned clock is uncertain, but does not make the other ranks uncertain.
_WHOLE = """
    SELECT max(agreement) AS agreement, bool_and(culprit_uncertain) AS culprit_uncertain, max(span_ns) AS span_ns
    FROM straggler_ranks WHERE capture_id = {capture}
"""


@dataclass(frozen=True)
class Stragglers:
    """A capture's ranks, worst first, its groups of ranks, and one cell per step and rank. Times are in ns.

    agreement: share of collectives for which durations and clocks name the same culprit; None without aligned clocks.
    culprit_uncertain: whether the culprits are uncertain on all ranks. matched_by: number of collectives by the
    evidence for their match, best evidence first.
    """

    capture_id: str
    job: str | None
    n_ranks: int
    world_size: int | None
    span_ns: int | None
    agreement: float | None
    culprit_uncertain: bool | None
    ranks: list[Row]
    groups: list[Row]
    cells: list[Row]
    quality: list[Row]
    matched_by: dict[str, int]

    @property
    def stragglers(self) -> list[int]:
        """Return the ranks that the rule classifies as stragglers."""
        return [row["rank"] for row in self.ranks if row["is_straggler"]]

    @property
    def named(self) -> str:
        """Return a phrase that names the stragglers, or states that there is none.

        If the clocks of some ranks are not aligned, "none" refers to the other ranks only.
        """
        names = ", ".join(f"rank {rank}" for rank in self.stragglers)
        if names:
            return f"straggler: {names}"
        return "no straggler among the ranks with an aligned clock" if self.undetermined else "no straggler"

    @property
    def undetermined(self) -> str:
        """Return a phrase about the ranks that cannot be judged because their clocks are not aligned, or ""."""
        rows = [row for row in self.ranks if row["is_straggler"] is None]
        if not rows:
            return ""
        ranks = ", ".join(str(row["rank"]) for row in rows)
        which = f"rank {ranks}" if len(rows) == 1 else f"ranks {ranks}"
        share = sum(row["caused_percent"] or 0 for row in rows)
        return f"unknown for {which} ({percent(share)} of all waiting), without an aligned clock"

    def drawn(self) -> tuple[list[Row], str]:
        """Return the cells of the ranks to draw, and a sentence about the choice of these ranks.

        The sentence is empty if all ranks are drawn.
        """
        worst_first = [row["rank"] for row in self.ranks] or sorted({cell["rank"] for cell in self.cells})
        ranks_to_draw = worst_and_median(worst_first, DRAWN)
        if len(ranks_to_draw) == len(worst_first):
            return self.cells, ""
        among = set(ranks_to_draw)
        return [cell for cell in self.cells if cell["rank"] in among], rank_count_caveat(
            len(ranks_to_draw), len(worst_first)
        )


def worst_and_median(worst_first: Sequence[int], most: int) -> list[int]:
    """Return all ranks, or if there are more than `most`, the worst ranks and for comparison the median rank."""
    if len(worst_first) <= most:
        return list(worst_first)
    median = worst_first[len(worst_first) // 2]
    return list(dict.fromkeys((*worst_first[: most - 1], median, worst_first[most - 1])))[:most]


def rank_count_caveat(n_shown: int, n_ranks: int) -> str:
    """Return the sentence about the choice of the shown ranks."""
    return f"{n_shown} of {n_ranks:,} ranks: those that most waiting goes back to, and the median"


def stragglers_of(con: duckdb.DuckDBPyConnection, capture_id: str) -> Stragglers:
    """Return the answer for a capture of `con`, which has `TABLES`. Raise LookupError if it does not exist."""
    captures = _rows(con, "SELECT job, n_ranks, world_size FROM captures WHERE capture_id = {capture}", capture_id)
    if not captures:
        raise LookupError(f"no capture {capture_id}")
    (summary,) = _rows(con, _WHOLE, capture_id)
    return Stragglers(
        capture_id=capture_id,
        **captures[0],
        **summary,
        ranks=_rows(con, _RANKS, capture_id),
        groups=_rows(con, _GROUPS, capture_id),
        cells=_rows(con, _CELLS, capture_id),
        quality=_rows(con, _QUALITY, capture_id),
        matched_by=evidence_of(con, capture_id),
    )


def _rows(con: duckdb.DuckDBPyConnection, query: str, capture_id: str) -> list[Row]:
    return rows_of(con, query.format(capture=quoted(capture_id)))
