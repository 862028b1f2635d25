"""Traces whose file ends early: every number about them is of the part that was read, and every face says so beside it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipelines.models.sqltext import quoted


class EarlyEnd(NamedTuple):
    """A trace whose file ends early; `detail`: what ingestion found, as in table `findings`."""

    trace_id: str
    file: str
    detail: str

    @property
    def said(self) -> str:
        """The caveat, as a sentence without its full stop."""
        return f"{self.file} ends early: all numbers are of the part before that, not of the whole run"

    def as_json(self) -> dict[str, str]:
        """The caveat of `--json`."""
        return {"caveat": "truncated", "severity": "error", "detail": f"{self.said} ({self.detail})"}


def early_end_of_saved(meta: dict[str, Any]) -> list[EarlyEnd]:
    """Returns that of the trace of a saved path, which may be gone; none if its file is whole. `meta`: as in SavedPath."""
    trace = meta["trace"]
    return [EarlyEnd(trace["trace_id"], trace["file"], trace["truncated"])] if trace["truncated"] else []


def early_ends(con: Any, of: str = "") -> list[EarlyEnd]:
    """Returns those in `con` (tables `traces` and `findings`), by file.

    `of`: only the traces whose id begins so, and those of captures whose id does (`capture_ranks`).
    """
    where = ""
    if of:
        members = f"SELECT trace_id FROM capture_ranks WHERE starts_with(capture_id, {quoted(of)})"
        where = f"AND (starts_with(t.trace_id, {quoted(of)}) OR t.trace_id IN ({members}))"
    rows = con.execute(
        "SELECT t.trace_id, t.file, max(f.detail) FROM traces AS t JOIN findings AS f USING (trace_id) "
        f"WHERE f.check_name = 'truncated' {where} GROUP BY ALL ORDER BY t.file, t.trace_id"
    ).fetchall()
    return [EarlyEnd(*row) for row in rows]
