"""The answer to why a capture takes as long as it does: one sentence, its causes and fixes, from TABLES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import duckdb

from pipelines.base import units
from pipelines.base.database import rows_of
from pipelines.base.datafiles import threshold
from pipelines.base.kernel_names import short_name
from pipelines.faces.advice import advice_of_name
from pipelines.faces.limiting_findings import findings_of_capture
from pipelines.faces.what_helps import best_fix, fix_json, what_if_command
from pipelines.faces.why import CLAUSE, NAME, Cause, grouped, microseconds, name_in_brackets, printed
from pipelines.fleet.collectives.evidence import evidence_in_words
from pipelines.models.sqltext import quoted

TABLES = ("traces", "findings", "capture_ranks", "capture_quality", "capture_paths", "capture_causes", "capture_fixes")
"""Tables that the answer reads."""
_RETIMED_EDGES = threshold("retimed_edges")


@dataclass(frozen=True)
class CaptureWhy:
    """The answer for a capture.

    `n_ranks`: number of joined ranks. `rows`: its rows of `capture_causes`, largest first. `matched_by`: the weakest evidence
    by which its collectives are matched.
    """

    title: str
    capture_id: str
    n_ranks: int
    rows: list[dict[str, Any]]
    caveats: list[dict[str, Any]]
    matched_by: str | None = None
    fixes: tuple[dict[str, Any], ...] = ()
    """Rows of table `capture_fixes`, largest saving first."""
    steps = 1

    def __str__(self) -> str:
        return printed(self.caveats, self.sentence)

    def caveat_for(self, cause: Cause) -> str:
        """Return "", because the caveats of a capture apply to all of its causes."""
        return ""

    @property
    def heading(self) -> str:
        """Return the title of the capture."""
        return self.title

    @cached_property
    def causes(self) -> list[Cause]:
        """Return the causes, each with all of its rows, largest first."""
        return grouped(self.rows)

    @cached_property
    def length(self) -> int:
        """Return the length of the path through all ranks, in ns."""
        return sum(row["duration_ns"] for row in self.rows)

    @cached_property
    def sentence(self) -> str:
        """Return one sentence that states where the capture's time goes."""
        largest = [cause for cause in self.causes if cause.duration >= CLAUSE * self.length][:3] or self.causes[:1]
        clauses = [f"{units.time(cause.duration)} {cause.kind['title']}{_of_rank(cause)}" for cause in largest]
        return f"Of {units.time(self.length)} through {self.n_ranks} ranks: {'; '.join(clauses)}.{best_fix(self.fixes, self.steps)}"

    def options(self, of_window: Sequence[str] = ()) -> list[str]:
        """Return the options with which other commands answer for the same capture."""
        return [*of_window]

    def fix_command(self, row: dict[str, Any], capture: str, of_window: Sequence[str] = ()) -> str:
        """Return the what-if command that computes a fix's saving."""
        return what_if_command(capture, row["options"], of_window)

    def _command(self, changes: str | None, subject: str, of_window: Sequence[str]) -> str | None:
        return what_if_command(subject or self.capture_id, changes, of_window) if changes else None

    def as_json(self, subject: str = "", options: Sequence[str] = ()) -> dict[str, Any]:
        """Return the object of `--json`, as for a trace (see Why.as_json), with the rank of each cause."""
        kinds = {cause.kind["cause"]: cause.kind for cause in self.causes}
        keys = ("cause", "rank", "name", "late_cause", "share_percent", "times", "event_id", "inferred")
        return {
            "sentence": self.sentence,
            "window": {"capture_id": self.capture_id, "length_us": self.length / 1000, "ranks": self.n_ranks},
            "matched_by": self.matched_by,
            "causes": [
                {key: row[key] for key in keys}
                | {"duration_us": row["duration_ns"] / 1000, "saves_us": microseconds(row["saves_ns"])}
                | {"cause_saves_us": microseconds(row["cause_saves_ns"])}
                # `command` computes `saves_us`, `cause_command` computes `cause_saves_us`.
                | {"command": self._command(row["options"], subject, options)}
                | {"cause_command": self._command(row["cause_options"], subject, options)}
                | {"title": kinds[row["cause"]]["title"], "advice": advice_of_name(row["cause"], row["name"])}
                for row in self.rows
            ],
            "fixes": [fix_json(row, self.fix_command(row, subject or self.capture_id, options)) for row in self.fixes],
            "caveats": self.caveats,
        }


def _of_rank(cause: Cause) -> str:
    """Return the largest name of a cause, in brackets, with its rank, or "" if it has at most half of the cause's time.

    The name of a late rank is always returned.
    """
    row = cause.rows[0]
    if cause.kind["cause"] == "late_rank":
        rank_text, colon, name = row["name"].rpartition(": ")
        return f" ({rank_text}{colon}{short_name(name, NAME)})"
    return f"{name_in_brackets(cause)} on rank {row['rank']}" if row["duration_ns"] * 2 > cause.duration else ""


def capture_why(con: duckdb.DuckDBPyConnection, capture_id: str, title: str = "") -> CaptureWhy | None:
    """Return the answer for a capture from TABLES in `con`, or None if it has no path."""
    return capture_why_from_queries(partial(rows_of, con), capture_id, title)


def capture_why_from_queries(
    ask: Callable[[str], list[dict[str, Any]]], capture_id: str, title: str = ""
) -> CaptureWhy | None:
    """Return the same answer as `capture_why`, with rows from `ask`, which maps a query to its rows by column name."""
    condition = f"capture_id = {quoted(capture_id)}"
    rows = ask(f"SELECT * FROM capture_causes WHERE {condition} ORDER BY duration_ns DESC, cause, rank, name")
    if not rows:
        return None
    for row in rows:
        row["halved_saves_ns"] = None
    (path,) = ask(
        "SELECT max(n_ranks) AS n_ranks, max(n_edges) AS n_edges, max(matched_by) AS matched_by "
        f"FROM capture_paths WHERE {condition}"
    )
    (ranks,) = ask(f"SELECT count(*) AS n FROM capture_ranks WHERE {condition} AND left_out_reason IS NULL")
    details = []
    if apart := ranks["n"] - path["n_ranks"]:
        details.append(
            f"{apart} of its {ranks['n']} ranks cannot be joined with the others, and may be what these wait for (table clock_offsets)"
        )
    guessed = sum(row["inferred_ns"] for row in rows)
    details += [f"{units.time(guessed)} of it follow from waits that are inferred"] if guessed else []
    details += [evidence_in_words([path["matched_by"]])] if path["matched_by"] else []
    if path["n_edges"] > _RETIMED_EDGES:
        details.append(
            f"its graphs have {path['n_edges']:,} edges together, too many to compute what would help, or what removing a cause saves"
        )
    caveats = [finding.as_json() for finding in findings_of_capture(ask, capture_id)]
    caveats += [{"severity": "info", "detail": detail} for detail in details]
    fixes = tuple(ask(f"SELECT * FROM capture_fixes WHERE {condition} ORDER BY saves_ns DESC, fix, name"))
    return CaptureWhy(
        title or capture_id, capture_id, path["n_ranks"], rows, caveats, matched_by=path["matched_by"], fixes=fixes
    )
