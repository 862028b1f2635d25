"""The header of a SQL statement: what a row is, what the rows belong to (scope), what must hold for them (checks).

The scope decides where a table is written, when it is computed and what commits its rows:

- trace: a row belongs to a trace; computed after ingestion, a batch of traces at a time.
- capture: to the ranks of a job that were profiled together; recomputed when late ranks arrive.
- run, job, dump, recording: to a run of a schedule, an op-level trace of a job, a set of Flight Recorder dumps, a
  recording; written when it is ingested.
- file: to a file that was given; no other table commits its rows.
- lake: a view over the whole lake, evaluated on every query.
- any other name: to what an input of its own brings (pipelines/readers/inputs); a table of the scope says that it is the mark.

One table of a scope is its commit mark: its header has the line `-- key: COLUMN`. The key is in every table of the
scope, and rows count where their key and batch are in the mark.

`-- part of: _TABLE` adds a model's rows to a private table that has no statement: it is all its parts together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pipelines.models.errors import CatalogError
from pipelines.models.statements import Statement, read_statements

TRACE, CAPTURE, RUN, JOB, DUMP, RECORDING, FILE, LAKE = SCOPES = (
    *("trace", "capture", "run", "job", "dump", "recording"),
    *("file", "lake"),
)
# The scope of statements that do not say theirs, where that is not trace.
USUAL = {"fleet": CAPTURE, "schedule": LAKE}
_ONE_ROW, _CHECK, _SCOPE, _KEY, _PART = "One row: ", "check: ", "scope: ", "key: ", "part of: "


@dataclass(frozen=True)
class Header:
    """What the comment at the top of a statement says.

    `key` is there where the table is the mark of its scope, `part_of` where another table is made of it and others.
    """

    doc: str
    scope: str
    key: str | None
    checks: tuple[str, ...]
    part_of: str | None = None


def read_header(statement: Statement) -> Header:
    """Returns the header of a statement. Raises CatalogError with file, line and what to write."""
    lines = _lines(statement.text)
    if not lines or not lines[0].startswith(_ONE_ROW):
        raise CatalogError(f"{statement.place}: start {statement.name} with `-- {_ONE_ROW}…`, which says what a row is")
    scope = _scope(statement, lines)
    checks = tuple(line.removeprefix(_CHECK) for line in lines if line.startswith(_CHECK))
    doc = " ".join(line for line in lines if not line.startswith((_CHECK, _SCOPE, _KEY, _PART)))
    return Header(doc, scope, _said(lines, _KEY), checks, _said(lines, _PART))


@lru_cache
def stored_tables(folder: Path) -> dict[str, tuple[str, str | None]]:
    """Scope and, of a mark, key of every public table of a folder, from the headers alone and unchecked."""
    found = {}
    for statement in read_statements(folder):
        if not statement.name.startswith("_"):
            lines = _lines(statement.text)
            found[statement.name] = _scope(statement, lines), _said(lines, _KEY)
    return {name: said for name, said in found.items() if said[0] != LAKE}


def _lines(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[2:].strip())
    return lines


def _said(lines: list[str], what: str) -> str | None:
    return next((line.removeprefix(what) for line in lines if line.startswith(what)), None)


def _scope(statement: Statement, lines: list[str]) -> str:
    return _said(lines, _SCOPE) or USUAL.get(statement.layer, TRACE)
