"""Section on hangs: where the ranks of a job diverge, from Flight Recorder dumps."""

from __future__ import annotations

import json

from markupsafe import Markup

from pipelines.faces.hang_words import stuck_on, why_stuck
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import Row, Subject
from pipelines.faces.report.tables import table
from pipelines.readers.flight_recorder.verdicts import OVERWRITTEN


def hangs(subject: Subject) -> Section | None:
    """Return the section with the verdicts on the subject's sets of dumps, or None if it has no dumps."""
    sets = _sets(subject)
    if not sets:
        return None
    note = (
        "From Flight Recorder dumps of the same job. A finding: the first collective on which the ranks of a "
        "group disagree; findings of other groups probably follow from the root."
    )
    return section("hangs", "Hangs", *(_set(dump_set, rows) for dump_set, rows in sets), note=note)


def stuck(subject: Subject) -> str:
    """Return a sentence that states where the job hangs, or "" if no dump shows a hang."""
    for _, rows in _sets(subject):
        if (root := _root(rows)) is not None:
            operation, why = _stuck_on(root)
            return f"{operation[:1].upper()}{operation[1:]}: {why}."
    return ""


def _sets(subject: Subject) -> list[tuple[Row, list[Row]]]:
    """Return the dump sets that belong to the traces, each with its verdicts, those on the hang's root first."""
    sets = subject.rows_of_all("hang-dumps")
    verdicts = subject.rows_of_all("hang-verdicts") if sets else []
    return [(dump_set, [row for row in verdicts if row["set_id"] == dump_set["set_id"]]) for dump_set in sets]


def _root(rows: list[Row]) -> Row | None:
    return next((row for row in rows if row["is_root"]), None)


def _stuck_on(root: Row) -> tuple[str, str]:
    """Return the call on which the job hangs, and the reason, from the verdict on the root of the hang."""
    culprits, waiting, dump_missing = (json.loads(root[key]) for key in ("culprits", "waiting", "dump_missing"))
    is_ambiguous = OVERWRITTEN in root["confidence"]
    # The table has no operation by rank.
    why = why_stuck(root["kind"], culprits, waiting, dump_missing, is_ambiguous, ops={})
    return stuck_on(root["op"], root["seq"], root["group_name"]), why


def _set(dump_set: Row, rows: list[Row]) -> Markup:
    confidence = (
        "" if dump_set["least_confidence"] is None else f" (confidence {dump_set['least_confidence']:.1f} or more)"
    )
    summary = f"{dump_set['n_dumps']} dumps; {dump_set['n_found']} of {dump_set['n_calls']} calls are found in the traces{confidence}"
    doubts = macros.doubts(json.loads(dump_set["doubts"] or "[]"))
    parts = (macros.heading(dump_set["folder"]), macros.paragraph(summary), _verdict(rows, dump_set), doubts)
    return Markup().join((*parts, table("hang-verdicts", rows)))


def _verdict(rows: list[Row], dump_set: Row) -> Markup:
    root = _root(rows)
    if root is None:
        healthy = "no mismatch: every collective that all ring buffers still hold completed on every rank"
        undecided = "undecided: no mismatch was found, but the job cannot be shown to be healthy"
        return macros.verdict(healthy if dump_set["verdict"] == "no_mismatch" else undecided)
    conclusion, why = _stuck_on(root)
    slow = "Its timeout had not expired when the dumps were written: a rank that is merely late looks the same."
    return macros.verdict(f": {why}", conclusion) + (macros.paragraph(slow) if root["may_be_slow"] else "")
