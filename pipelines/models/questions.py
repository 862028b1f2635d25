"""Saved questions: `sql/ask/<topic>/<name>.sql`, each one query over the public tables, with its question and how to read the answer.

The file runs as it is, over the whole lake. A question about traces reads `traces AS t`, one about captures `captures AS c`;
`asked` puts the chosen part in that place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pipelines.base.close_names import meant
from pipelines.base.datafiles import SQL_DIR
from pipelines.base.errors import TracelakeError
from pipelines.models.errors import CatalogError
from pipelines.models.sqltext import quoted, row
from pipelines.models.statements import QUESTIONS

if TYPE_CHECKING:
    import duckdb

Limit = str | int | Sequence[str] | None
# Folder of sql/ask → the topic as users read it, in the order in which topics are listed.
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
# What a question can be limited to, by the table that it reads; a text is the beginning of an id (or a trace's file), `job` a whole
# name.
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
    """There is no such question, or it cannot be limited in this way; the message says what there is."""

    hint = "`tracelake ask` lists all questions."


@dataclass(frozen=True)
class Question:
    """A saved question. `reading`: what a row is, and what to beware of; `words`: other words that people look for."""

    name: str
    topic: str
    question: str
    reading: str
    sql: str
    words: str = ""

    @property
    def limits(self) -> list[str]:
        """Returns what it can be limited to: job, capture, trace, rank."""
        return list(_CONDITIONS[self._of]) if self._of else []

    @property
    def _of(self) -> str:
        return next((place for place in _CONDITIONS if place in self.sql), "")

    def asked(self, top: int = 0, **limits: Limit) -> str:
        """Returns its SQL for part of the lake and at most `top` rows (0: all); a list of `trace` or `capture` has whole ids.
        Raises NotAsked.
        """
        given: Mapping[str, str | int | Sequence[str]] = {
            name: value for name, value in limits.items() if value is not None
        }
        if refused := [name for name in given if name not in self.limits]:
            can = f"only by {', '.join(self.limits)}" if self.limits else "not at all"
            raise NotAsked(f"{self.name} cannot be limited by {', '.join(refused)}: {can}")
        sql = self.sql
        if given:
            conditions = _CONDITIONS[self._of]
            table, alias = self._of.split(" AS ")
            where = " AND ".join(_condition(name, conditions[name], value) for name, value in given.items())
            sql = sql.replace(self._of, f"(SELECT * FROM {table} WHERE {where}) AS {alias}")
        return f"{sql}\nLIMIT {top}" if top else sql


@lru_cache(maxsize=1)
def load_questions() -> dict[str, Question]:
    """Returns all questions by name, in the order of their topics. Raises CatalogError where a header is wrong."""
    found: dict[str, Question] = {}
    for path in sorted((SQL_DIR / QUESTIONS).rglob("*.sql")):
        topic = TOPICS.get(path.parent.name)
        if topic is None:
            raise CatalogError(
                f"{path}:1: put the question into one of the folders {', '.join(TOPICS)} of sql/{QUESTIONS}"
            )
        if path.stem in found:
            raise CatalogError(f"{path}:1: rename it: {found[path.stem].topic!r} has a question of this name")
        lines = path.read_text(encoding="utf-8").splitlines()
        head = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
        told = re.fullmatch("".join(rf"{part}: (.+?) ?" for part in _PARTS) + "(?:Words: (.+))?", " ".join(head))
        if told is None:
            raise CatalogError(
                f"{path}:1: write `-- Question: …`, `-- Reading: …`, and, where people look for other words, `-- Words: …`"
            )
        sql = "\n".join(line for line in lines if not line.startswith("-- ")).strip()
        found[path.stem] = Question(path.stem, topic, told[1], told[2], sql, told[3] or "")
    order = list(TOPICS.values())
    return dict(sorted(found.items(), key=lambda named: order.index(named[1].topic)))


def questions_about(text: str) -> list[Question]:
    """Returns the questions with this text in their name, question, words or reading; those that only the reading has last.

    A hyphen also stands for a blank, as in names of questions.
    """
    found, asked = [], {text.lower(), text.lower().replace("-", " ")}
    for one in load_questions().values():
        first = f"{one.name} {one.question} {one.words}".lower()
        if any(words in f"{first} {one.reading}".lower() for words in asked):
            found.append((not any(words in first for words in asked), one))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def question_named(name: str) -> Question:
    """Returns a question. Raises NotAsked, with names that are like this one."""
    if (found := load_questions().get(name)) is None:
        raise NotAsked(f"no question {name!r}: {meant(name, load_questions())}")
    return found


def rows_of_question(con: duckdb.DuckDBPyConnection, name: str, top: int = 0, **limits: Limit) -> list[dict[str, Any]]:
    """Returns the rows that answer a question over the tables in `con`, by column name; `trace` and `capture` are whole ids."""
    from pipelines.base.database import rows_of  # DuckDB, which who lists the questions does not need

    ids = {key: [value] for key, value in limits.items() if key in ("trace", "capture") and isinstance(value, str)}
    return rows_of(con, question_named(name).asked(top, **{**limits, **ids}))


def _condition(name: str, text: str, value: str | int | Sequence[str]) -> str:
    if isinstance(value, int):
        return text.format(value)
    if isinstance(value, str):
        return text.format(quoted(value))
    # Of what equals a constant, DuckDB knows in the joined tables, too: it opens only the files of one trace.
    return f"{name}_id = {quoted(value[0])}" if len(value) == 1 else f"{name}_id IN {row(value)}"
