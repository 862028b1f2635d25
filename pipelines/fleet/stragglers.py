"""Which ranks the others wait for in a capture: the answer of `tracelake stragglers`, from the tables of captures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb

from pipelines.database import rows_of
from pipelines.sqltext import quoted

TABLES = ("captures", "capture_quality", "clock_offsets", "straggler_ranks", "straggler_groups", "rank_steps")
Row = dict[str, Any]

_RANKS = """
    SELECT s.rank, s.n_collectives, s.wait_ns, s.caused_wait_ns, s.caused_percent, s.marginal_ns, s.marginal_percent,
        s.n_last, s.share_last, s.is_straggler, c.offset_ns, c.error_ns, c.refused_reason AS clock_refused
    FROM straggler_ranks AS s JOIN clock_offsets AS c USING (capture_id, rank)
    WHERE capture_id = {capture} ORDER BY s.caused_wait_ns DESC, s.rank
"""
_GROUPS = """
    SELECT role, group_name, n_ranks, wait_ns, caused_wait_ns, caused_percent, marginal_ns, worst_rank, has_straggler
    FROM straggler_groups WHERE capture_id = {capture} ORDER BY role, caused_wait_ns DESC, group_name
"""
_CELLS = """
    SELECT step, rank, step_ns, compute_ns, n_collectives, wait_ns, caused_wait_ns, marginal_ns, share_last
    FROM rank_steps WHERE capture_id = {capture} ORDER BY step NULLS LAST, rank
"""
_QUALITY = 'SELECT "check", severity, n, detail FROM capture_quality WHERE capture_id = {capture} ORDER BY ALL'
_WHOLE = """
    SELECT max(agreement) AS agreement, bool_or(culprit_uncertain) AS culprit_uncertain, max(span_ns) AS span_ns
    FROM straggler_ranks WHERE capture_id = {capture}
"""


@dataclass(frozen=True)
class Stragglers:
    """A capture's ranks, worst first, its groups of ranks, and one cell per step and rank. Times in ns.

    agreement: share of collectives in which durations and clocks name the same culprit; None without aligned clocks.
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

    @property
    def stragglers(self) -> list[int]:
        """Returns the ranks that the rule calls stragglers."""
        return [row["rank"] for row in self.ranks if row["is_straggler"]]


def stragglers_of(con: duckdb.DuckDBPyConnection, capture_id: str) -> Stragglers:
    """Returns the answer for a capture of `con`, which has `TABLES`. Raises LookupError if there is no such capture."""
    captures = _rows(con, "SELECT job, n_ranks, world_size FROM captures WHERE capture_id = {capture}", capture_id)
    if not captures:
        raise LookupError(f"no capture {capture_id}")
    (whole,) = _rows(con, _WHOLE, capture_id)
    return Stragglers(
        capture_id=capture_id,
        **captures[0],
        **whole,
        ranks=_rows(con, _RANKS, capture_id),
        groups=_rows(con, _GROUPS, capture_id),
        cells=_rows(con, _CELLS, capture_id),
        quality=_rows(con, _QUALITY, capture_id),
    )


def _rows(con: duckdb.DuckDBPyConnection, query: str, capture_id: str) -> list[Row]:
    return rows_of(con, query.format(capture=quoted(capture_id)))
