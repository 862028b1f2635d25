"""Saved questions: `sql/ask/<topic>/<name>.sql`, each a query over the public tables, with an explanation.

`sql/report/` has further questions in the same format, which only report pages ask.

The query runs unchanged over the whole lake. A question about traces reads `traces AS t`, a question about captures
`captures AS c`. For part of the lake, `asked` replaces this table by a subquery with the limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.close_names import meant
from pipelines.base.datafiles import SQL_DIR
from pipelines.base.errors import TracelakeError
from pipelines.models.errors import CatalogError
from pipelines.models.sqltext import quoted, row
from pipelines.models.statements import PAGE_QUESTIONS, QUESTIONS

if TYPE_CHECKING:
    import duckdb

Limit = str | int | Sequence[str] | None
# Folder of sql/ask → displayed topic, in the order of the list.
TOPICS = {
    "lake": "The lake",
    "gpu_time": "GPU time",
    "steps": "Steps",
    "critical_path": "Critical path",
    "host_and_streams": "Host and streams",
    "operators": "Operators and modules",
    "graphs": "CUDA and HIP graphs",
    "communication": "Communication",
    "memory": "Memory",
    "captures": "Captures and cost",
    "schedules": "Schedules",
}
_PARTS = ("Question", "Reading")
# Limits of a question, by the table that it reads. A limit is an id's prefix, a trace's file, or a full job name.
_CONDITIONS = {
    "traces AS t": {
        "job": "job = {}",
        "capture": "starts_with(capture_id, {})",
        "trace": "(starts_with(trace_id, {0}) OR file = {0})",
        "rank": "rank = {}",
    },
    "captures AS c": {"job": "job = {}", "capture": "starts_with(capture_id, {})"},
}


class NotAsked(TracelakeError, ValueError):
    """The question does not exist, or does not support this limit. The message lists valid names or limits."""

    hint = "`tracelake ask` lists all questions."


@dataclass(frozen=True)
class Question:
    """A saved question. `reading`: the meaning of a row, and caveats. `words`: further search terms."""

    name: str
    topic: str
    question: str
    reading: str
    sql: str
    words: str = ""

    @property
    def limits(self) -> list[str]:
        """The supported limits: job, capture, trace, rank."""
        return list(_CONDITIONS[self._of]) if self._of else []

    @property
    def _of(self) -> str:
        return next((table for table in _CONDITIONS if table in self.sql), "")

    def asked(self, top: int = 0, **limits: Limit) -> str:
        """Return the SQL for part of the lake and at most `top` rows (0: all). Raise NotAsked for an unsupported limit.

        A list for `trace` or `capture` contains complete ids.
        """
        if unsupported := [name for name, value in limits.items() if value is not None and name not in self.limits]:
            supported = f"only by {', '.join(self.limits)}" if self.limits else "not at all"
            raise NotAsked(f"{self.name} cannot be limited by {', '.join(unsupported)}: {supported}")
        sql = part_of(self.sql, self._of, limits)
        return f"{sql}\nLIMIT {top}" if top else sql


def part_of(sql: str, table: str, limits: Mapping[str, Limit]) -> str:
    """Return a query in which a table of _CONDITIONS, such as `traces AS t`, has only the rows within the limits."""
    conditions = [
        _condition(name, _CONDITIONS[table][name], value) for name, value in limits.items() if value is not None
    ]
    if not conditions:
        return sql
    name, alias = table.split(" AS ")
    return sql.replace(table, f"(SELECT * FROM {name} WHERE {' AND '.join(conditions)}) AS {alias}")


@lru_cache(maxsize=1)
def load_questions() -> dict[str, Question]:
    """Return all questions by name, in the order of their topics. Raise CatalogError if a header is wrong."""
    questions: dict[str, Question] = {}
    for path in sorted((SQL_DIR / QUESTIONS).rglob("*.sql")):
        topic = TOPICS.get(path.parent.name)
        if topic is None:
            raise CatalogError(
                f"{path}:1: put the question into one of the folders {', '.join(TOPICS)} of sql/{QUESTIONS}"
            )
        if path.stem in questions:
            raise CatalogError(f"{path}:1: rename it: {questions[path.stem].topic!r} has a question of this name")
        questions[path.stem] = _read(path, topic)
    order = list(TOPICS.values())
    return dict(sorted(questions.items(), key=lambda item: order.index(item[1].topic)))


@lru_cache(maxsize=1)
def page_questions() -> dict[str, Question]:
    """Return the questions that only report pages ask, by name. Raise CatalogError if a header is wrong."""
    return {path.stem: _read(path, "Report") for path in sorted((SQL_DIR / PAGE_QUESTIONS).rglob("*.sql"))}


def _read(path: Path, topic: str) -> Question:
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line.removeprefix("-- ") for line in takewhile(lambda line: line.startswith("-- "), lines)]
    match = re.fullmatch("".join(rf"{part}: (.+?) ?" for part in _PARTS) + "(?:Words: (.+))?", " ".join(head))
    if match is None:
        raise CatalogError(
            f"{path}:1: write `-- Question: …`, `-- Reading: …`, and, if users search for other words, `-- Words: …`"
        )
    sql = "\n".join(line for line in lines if not line.startswith("-- ")).strip()
    return Question(path.stem, topic, match[1], match[2], sql, match[3] or "")


_NO_TRACES = "SELECT NULL AS path, NULL AS ingested_at, NULL AS ingest_batch_id, NULL AS batch_id WHERE false"


def rejected_files(con: duckdb.DuckDBPyConnection) -> str:
    """Return a SELECT of the files that are still rejected, as in the question `rejected-files`.

    `con` need not have a table `traces`.
    """
    sql = load_questions()["rejected-files"].sql
    if not con.execute("SELECT 1 FROM information_schema.tables WHERE table_name = 'traces'").fetchall():
        sql = sql.replace("traces AS later", f"({_NO_TRACES}) AS later")
    return f"({sql})"


def still_rejected(rejects: str, traces: str) -> str:
    """Return a SELECT of all attempts to ingest the files that are still rejected.

    The question `rejected-files` returns only the newest attempt of each file. `rejects`, `traces`: SELECTs of all
    rejected attempts and of all traces. `traces` is an empty text without traces.
    """
    sql, _, _ = load_questions()["rejected-files"].sql.partition("QUALIFY")
    sql = sql.replace("traces AS later", f"({traces or _NO_TRACES}) AS later")
    return sql.replace("rejects AS r", f"({rejects}) AS r")


def questions_about(text: str) -> list[Question]:
    """Return the questions with this text in their name, question, words or reading, with matches in the reading last.

    A hyphen in the text also matches a blank, because names of questions have hyphens.
    """
    matches, spellings = [], {text.lower(), text.lower().replace("-", " ")}
    for question in load_questions().values():
        main_text = f"{question.name} {question.question} {question.words}".lower()
        if any(spelling in f"{main_text} {question.reading}".lower() for spelling in spellings):
            matches.append((not any(spelling in main_text for spelling in spellings), question))
    return [question for _, question in sorted(matches, key=lambda pair: pair[0])]


def question_named(name: str) -> Question:
    """Return a question. Raise NotAsked with similar names if it does not exist."""
    if (question := load_questions().get(name)) is None:
        raise NotAsked(f"no question {name!r}: {meant(name, load_questions())}")
    return question


def rows_of_question(con: duckdb.DuckDBPyConnection, name: str, top: int = 0, **limits: Limit) -> list[dict[str, Any]]:
    """Return the rows that answer a saved question or a report page's question over the tables in `con`.

    Rows are dictionaries by column name. `trace` and `capture` are complete ids.
    """
    from pipelines.base.database import rows_of  # imports DuckDB, which a list of questions does not need

    ids = {key: [value] for key, value in limits.items() if key in ("trace", "capture") and isinstance(value, str)}
    question = page_questions().get(name) or question_named(name)
    return rows_of(con, question.asked(top, **{**limits, **ids}))


def _condition(name: str, text: str, value: str | int | Sequence[str]) -> str:
    if isinstance(value, int):
        return text.format(value)
    if isinstance(value, str):
        return text.format(quoted(value))
    # DuckDB also applies equality with a constant to the joined tables, so it opens only the files of one trace.
    return f"{name}_id = {quoted(value[0])}" if len(value) == 1 else f"{name}_id IN {row(value)}"
