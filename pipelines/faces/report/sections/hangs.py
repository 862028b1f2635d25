"""Section on hangs: where the ranks of a job diverge, from Flight Recorder dumps."""

from __future__ import annotations

import json

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count
from pipelines.faces.report.blocks import Block, Column, Section, heading, paragraph, section, table, verdict
from pipelines.faces.report.formats import words
from pipelines.faces.report.subject import Row, Subject
from pipelines.models.questions import rows_of_question
from pipelines.models.sqltext import quoted

_COLUMNS = [
    *(Column("group_name", "group"), Column("group_description", "description"), Column("group_ranks", "ranks", words)),
    *(Column("dump_missing", "without dump", words), Column("kind", "finding", words), Column("seq", "number", count)),
    *(Column("op", "operation"), Column("culprits", "because of", words), Column("waiting", "waiting", words)),
    *(Column("state", "state", words), Column("confidence", "confidence", words)),
    Column("is_root", "root", lambda value: "yes" if value else "no"),
]


def hangs(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section | None:
    """Return the section with the verdicts on the subject's sets of dumps, or None if it has no dumps."""
    sets = rows_of_question(con, "hang-dumps", trace=subject.ids)
    if not sets:
        return None
    note = (
        "From Flight Recorder dumps of the same job. A finding: the first collective on which the ranks of a "
        "group disagree; findings of other groups probably follow from the root."
    )
    return section("hangs", "Hangs", *(_set(con, row) for row in sets), note=note)


def stuck(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """Return a sentence that states where the job hangs, or "" if no dump shows a hang."""
    for dump_set in rows_of_question(con, "hang-dumps", trace=subject.ids):
        root = next((row for row in _verdicts(con, dump_set["set_id"]) if row["is_root"]), None)
        if root is not None:
            operation, why = _stuck_on(root)
            return f"{operation[:1].upper()}{operation[1:]} ({why})."
    return ""


def _verdicts(con: duckdb.DuckDBPyConnection, set_id: str) -> list[Row]:
    return rows_of(
        con,
        f"SELECT * FROM flight_recorder_verdicts WHERE set_id = {quoted(set_id)} "
        "ORDER BY is_root DESC NULLS LAST, kind IS NULL, created_ns, group_name, group_ranks",
    )


def _stuck_on(root: Row) -> tuple[str, str]:
    op = root["op"] or "a collective"
    operation = f"the job is stuck on {op} number {root['seq']} of group {root['group_name']}"
    return operation, f"{root['kind']}; because of ranks {root['culprits']}, for whom {root['waiting']} wait"


def _set(con: duckdb.DuckDBPyConnection, dump_set: Row) -> list[Block]:
    rows = _verdicts(con, dump_set["set_id"])
    confidence = (
        "" if dump_set["least_confidence"] is None else f" (confidence {dump_set['least_confidence']:.1f} or more)"
    )
    summary = f"{dump_set['n_dumps']} dumps; {dump_set['n_found']} of {dump_set['n_calls']} calls are found in the traces{confidence}"
    blocks = [heading(dump_set["folder"]), paragraph(summary), *_verdict(rows, dump_set)]
    return [*blocks, table("flight_recorder_verdicts", _COLUMNS, rows)]


def _verdict(rows: list[Row], dump_set: Row) -> list[Block]:
    root = next((row for row in rows if row["is_root"]), None)
    doubt_texts = json.loads(dump_set["doubts"] or "[]")
    doubts = [Block("doubts", doubt_texts)] if doubt_texts else []
    if root is None:
        healthy = "no mismatch: every collective that all ring buffers still hold completed on every rank"
        undecided = "undecided: no mismatch was found, but the job cannot be shown to be healthy"
        conclusion = healthy if dump_set["verdict"] == "no_mismatch" else undecided
        return [verdict(conclusion), *doubts]
    conclusion, why = _stuck_on(root)
    slow = "Its timeout had not expired when the dumps were written: a rank that is merely late looks the same."
    return [verdict(f" ({why})", conclusion), *([paragraph(slow)] if root["may_be_slow"] else []), *doubts]
