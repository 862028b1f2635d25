"""The statements under sql/: the model that each defines, and its location.

A folder directly under sql/ is a layer, and the folders below it are topics. A file is one SELECT, and the table has
the file's name. A private model that only this file reads may precede its reader in the file. Then each statement
begins with a line `-- model: NAME` and ends with `;`. The last statement has the file's name. All other names begin
with an underscore.

`threshold('name')` in a text is replaced by the number in sql/rules/thresholds.csv, and `edge_code('NAME')` by the
number of the type in sql/rules/path/edge_types.csv. So plans and model versions are the same as with the number in the
text, on every engine and in views.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipelines.base.datafiles import SQL_DIR, rule_rows, thresholds
from pipelines.models.errors import CatalogError

QUESTIONS = "ask"  # the folder of saved questions, which are not tables (questions.py)
PAGE_QUESTIONS = "report"  # the folder of questions that only report pages ask
_MARK = "-- model: "
_PREFIXES = ("threshold('", "edge_code('")
_CALL = re.compile(r"\b(threshold|edge_code)\('([^']*)'\)")
_RULES = {"threshold": ("threshold", "thresholds"), "edge_code": ("edge type", "path/edge_types")}
_BEGIN = re.compile(rf"^{_MARK}(.*)\n?", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """A model's text, without the line that names it. `line`: the line of the file at which the text begins."""

    name: str
    layer: str
    path: Path
    line: int
    text: str

    @property
    def place(self) -> str:
        """The statement's file and line, as in error messages."""
        return f"{self.path}:{self.line}"


def read_statements(folder: Path) -> tuple[Statement, ...]:
    """Return the statements of all files of a folder like sql/, by layer and name.

    The project's files are read once per process. Raise CatalogError if a file breaks the rules for statements.
    """
    return _statements_of_project() if folder == SQL_DIR else _read_statements(folder)


@cache
def _statements_of_project() -> tuple[Statement, ...]:
    return _read_statements(SQL_DIR)


def _read_statements(folder: Path) -> tuple[Statement, ...]:
    layers = [path for path in folder.iterdir() if path.is_dir() and path.name not in (QUESTIONS, PAGE_QUESTIONS)]
    statements = (s for layer in layers for path in sorted(layer.rglob("*.sql")) for s in _split(path, layer.name))
    return tuple(sorted(statements, key=lambda statement: (statement.layer, statement.name)))


def with_numbers(path: Path, text: str) -> str:
    """Return the text with thresholds and codes of edge types as numbers. Raise CatalogError for an unknown name."""
    if not any(prefix in text for prefix in _PREFIXES):
        return text  # true of most texts, and much faster than the regular expression
    values = {"threshold": thresholds(), "edge_code": _edge_codes()}
    for call in _CALL.finditer(text):
        if call[2] not in values[call[1]]:
            line = text.count("\n", 0, call.start()) + 1
            kind, file = _RULES[call[1]]
            raise CatalogError(f"{path}:{line}: unknown {kind} {call[2]!r}; add its row to sql/rules/{file}.csv")
    return _CALL.sub(lambda call: values[call[1]][call[2]], text)


@cache
def _edge_codes() -> Mapping[str, str]:
    return {row["edge_type"]: row["edge_code"] for row in rule_rows("edge_types")}


def _split(path: Path, layer: str) -> Iterator[Statement]:
    text = with_numbers(path, path.read_text(encoding="utf-8"))
    marks = list(_BEGIN.finditer(text)) if _MARK in text else []
    if not marks:
        yield Statement(path.stem, layer, path, 1, text)
        return
    if text[: marks[0].start()].strip():
        raise CatalogError(f"{path}:1: begin the file with `-- model: NAME`, as its other statements do")
    for begin, end in zip(marks, [*(match.start() for match in marks[1:]), len(text)], strict=True):
        line = text.count("\n", 0, begin.end()) + 1
        name, is_last = begin[1].strip(), end == len(text)
        if is_last != (name == path.stem) or not (is_last or name.startswith("_")):
            raise CatalogError(
                f"{path}:{line - 1}: the model {name!r}: begin its name with an underscore, or make it the last of the file "
                f"and name it {path.stem!r}"
            )
        statement_text = text[begin.end() : end].rstrip().removesuffix(";").rstrip()
        yield Statement(name, layer, path, line, f"{statement_text}\n")
