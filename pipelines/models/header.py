"""Header of a SQL statement: the meaning of a row, the owner of the rows (scope), and conditions for them (checks).

The scope decides where a table is written, when it is computed and which table commits its rows:

- trace: Rows belong to a trace. They are computed after ingestion, for a batch of traces at a time.
- capture: Rows belong to the ranks of a job that were profiled together. They are recomputed when late ranks arrive.
- run, job, dump, recording: Rows belong to a run of a schedule, an op-level trace of a job, a set of Flight Recorder
  dumps, or a recording. Ingestion writes them.
- file: Rows belong to an input file. No other table commits them.
- lake: The table is a view over the whole lake, evaluated on every query.
- any other name: Rows belong to a set of another input (pipelines/readers/inputs). A table of the scope is the commit
  marker.

One table of a scope is its commit marker, with the line `-- key: COLUMN` in its header. Every table of the scope has
the key. A row is valid if its key and batch are in the commit marker.

`-- part of: _TABLE` adds a model's rows to a private table without a statement, which is the union of its parts.
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
# Layer → default scope of its statements. In all other layers, the default is `trace`.
USUAL = {"fleet": CAPTURE, "schedule": LAKE}
_ONE_ROW, _CHECK, _SCOPE, _KEY, _PART = "One row: ", "check: ", "scope: ", "key: ", "part of: "


@dataclass(frozen=True)
class Header:
    """The comment at the top of a statement.

    `key`: key column if the table is the commit marker of its scope, else None. `part_of`: table that is the union of
    this table and others, or None.
    """

    doc: str
    scope: str
    key: str | None
    checks: tuple[str, ...]
    part_of: str | None = None


def read_header(statement: Statement) -> Header:
    """Return the header of a statement. Raise CatalogError with file, line and remedy if it breaks the rules."""
    lines = _lines(statement.text)
    if not lines or not lines[0].startswith(_ONE_ROW):
        raise CatalogError(f"{statement.place}: start {statement.name} with `-- {_ONE_ROW}…`, which says what a row is")
    scope = _scope(statement, lines)
    checks = tuple(line.removeprefix(_CHECK) for line in lines if line.startswith(_CHECK))
    doc = " ".join(line for line in lines if not line.startswith((_CHECK, _SCOPE, _KEY, _PART)))
    return Header(doc, scope, _said(lines, _KEY), checks, _said(lines, _PART))


@lru_cache
def stored_tables(folder: Path) -> dict[str, tuple[str, str | None]]:
    """Return (scope, key) of every public table of a folder that is not a view, from the unchecked headers.

    `key`: None unless the table is a commit marker.
    """
    scope_and_key = {}
    for statement in read_statements(folder):
        if not statement.name.startswith("_"):
            lines = _lines(statement.text)
            scope_and_key[statement.name] = _scope(statement, lines), _said(lines, _KEY)
    return {name: pair for name, pair in scope_and_key.items() if pair[0] != LAKE}


def _lines(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[2:].strip())
    return lines


def _said(lines: list[str], label: str) -> str | None:
    return next((line.removeprefix(label) for line in lines if line.startswith(label)), None)


def _scope(statement: Statement, lines: list[str]) -> str:
    return _said(lines, _SCOPE) or USUAL.get(statement.layer, TRACE)
