"""Traces that do not cover their whole run, because the file is truncated or the profiler lost GPU work.

Every interface shows a caveat for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pipelines.models.sqltext import quoted, row

CUT, LOST = (
    "truncated",
    "lost_kernels",
)  # copies, because importing them from readers would import numpy for every query
CHECKS = (CUT, LOST)
"""Ingestion's checks that find incomplete traces."""


class Incomplete(NamedTuple):
    """A trace that does not cover its whole run, with ingestion's finding: check (one of CHECKS), severity and detail."""

    trace_id: str
    file: str
    check: str
    severity: str
    detail: str

    @property
    def sentence(self) -> str:
        """Return the caveat, without a full stop."""
        if self.check == CUT:
            return f"{self.file} ends early: all numbers are of the part before that, not of the whole run"
        return f"{self.file}: {self.detail}"

    def as_json(self) -> dict[str, str]:
        """Return the caveat for `--json`."""
        detail = f"{self.sentence} ({self.detail})" if self.check == CUT else self.sentence
        return {"caveat": self.check, "severity": self.severity, "detail": detail}


def incomplete_of_saved(meta: dict[str, Any]) -> list[Incomplete]:
    """Return the findings about the trace of a saved path, without reading the trace, which may no longer exist.

    `meta`: as in SavedPath.
    """
    trace = meta["trace"]
    cut, lost = trace["truncated"], trace.get(LOST)  # missing in saved paths of 0.2.0
    rows = [(CUT, "error", cut)] if cut else []
    rows += [(LOST, lost["severity"], lost["detail"])] if lost else []
    return [Incomplete(trace["trace_id"], trace["file"], *row) for row in rows]


def incomplete_traces(con: Any, of: str = "") -> list[Incomplete]:
    """Return the incomplete traces in `con` (tables `traces` and `findings`), by file.

    `of`: prefix of a trace id, or of the id of a capture (table `capture_ranks`) whose traces to return; empty for all traces.
    """
    where = ""
    if of:
        members = f"SELECT trace_id FROM capture_ranks WHERE starts_with(capture_id, {quoted(of)})"
        where = f"AND (starts_with(t.trace_id, {quoted(of)}) OR t.trace_id IN ({members}))"
    rows = con.execute(
        "SELECT t.trace_id, t.file, f.check_name, max(f.severity), max(f.detail) "
        "FROM traces AS t JOIN findings AS f USING (trace_id) "
        f"WHERE f.check_name IN {row(CHECKS)} {where} GROUP BY ALL ORDER BY t.file, t.trace_id, f.check_name"
    ).fetchall()
    return [Incomplete(*row) for row in rows]
