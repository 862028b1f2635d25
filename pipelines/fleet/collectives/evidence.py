"""The evidence for a capture's matches, as counts and as text. Every answer that depends on matches states it."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from pipelines.base.datafiles import rule_rows
from pipelines.models.sqltext import quoted


def evidence_of(con: duckdb.DuckDBPyConnection, capture_id: str) -> dict[str, int]:
    """Return from `collectives` the number of used collectives by their weakest evidence, best evidence first."""
    rows = con.execute(
        "SELECT c.matched_by, count(*) FROM collectives AS c "
        f"WHERE c.capture_id = {quoted(capture_id)} AND c.refused_reason IS NULL GROUP BY c.matched_by"
    ).fetchall()
    counts: dict[str, int] = dict(rows)
    return {name: counts[name] for name in _phrases() if name in counts}


def evidence_in_words(names: Sequence[str]) -> str:
    """Return the evidence as a clause, or "" without evidence."""
    phrases = _phrases()
    return f"calls of the ranks are matched by {', '.join(phrases[name] for name in names)}" if names else ""


def _phrases() -> dict[str, str]:
    return {row["matched_by"]: row["phrase"] for row in rule_rows("match_evidence")}
