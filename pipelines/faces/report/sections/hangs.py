"""Where the ranks diverged when the job hung: verdicts over Flight Recorder dumps of the same job."""

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
    """Returns the verdicts of the subject's sets of dumps; nothing if it has none."""
    sets = rows_of_question(con, "hang-dumps", trace=subject.ids)
    if not sets:
        return None
    note = (
        "From Flight Recorder dumps of the same job. A finding: the first collective on which the ranks of a "
        "group disagree; findings of other groups probably follow from the root."
    )
    return section("hangs", "Hangs", *(_set(con, row) for row in sets), note=note)


def stuck(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """Returns where the job hangs as a sentence; nothing if no dump of it shows that."""
    for of in rows_of_question(con, "hang-dumps", trace=subject.ids):
        root = next((row for row in _verdicts(con, of["set_id"]) if row["is_root"]), None)
        if root is not None:
            said, why = _stuck_on(root)
            return f"{said[:1].upper()}{said[1:]} ({why})."
    return ""


def _verdicts(con: duckdb.DuckDBPyConnection, set_id: str) -> list[Row]:
    return rows_of(
        con,
        f"SELECT * FROM flight_recorder_verdicts WHERE set_id = {quoted(set_id)} "
        "ORDER BY is_root DESC NULLS LAST, kind IS NULL, created_ns, group_name, group_ranks",
    )


def _stuck_on(root: Row) -> tuple[str, str]:
    op = root["op"] or "a collective"
    said = f"the job is stuck on {op} number {root['seq']} of group {root['group_name']}"
    return said, f"{root['kind']}; because of ranks {root['culprits']}, for whom {root['waiting']} wait"


def _set(con: duckdb.DuckDBPyConnection, of: Row) -> list[Block]:
    rows = _verdicts(con, of["set_id"])
    least = "" if of["least_confidence"] is None else f" (confidence {of['least_confidence']:.1f} or more)"
    found = f"{of['n_dumps']} dumps; {of['n_found']} of {of['n_calls']} calls are found in the traces{least}"
    told = [heading(of["folder"]), paragraph(found), *_verdict(rows, of)]
    return [*told, table("flight_recorder_verdicts", _COLUMNS, rows)]


def _verdict(rows: list[Row], of: Row) -> list[Block]:
    root = next((row for row in rows if row["is_root"]), None)
    found = json.loads(of["doubts"] or "[]")
    doubts = [Block("doubts", found)] if found else []
    if root is None:
        healthy = "no mismatch: every collective that all ring buffers still hold completed on every rank"
        undecided = "undecided: no mismatch was found, but the job cannot be shown to be healthy"
        said = healthy if of["verdict"] == "no_mismatch" else undecided
        return [verdict(said), *doubts]
    said, why = _stuck_on(root)
    slow = "Its timeout had not expired when the dumps were written: a rank that is merely late looks the same."
    return [verdict(f" ({why})", said), *([paragraph(slow)] if root["may_be_slow"] else []), *doubts]
