"""The path answer as JSON, streamed row by row from DuckDB: a path of a million rows is never held as objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from pipelines.critical_path.path_answer import PathAnswer
from pipelines.models.catalog import Catalog

_ROWS = 1 << 13  # at a time


def json_parts(con: duckdb.DuckDBPyConnection, catalog: Catalog, answer: PathAnswer) -> Iterator[str]:
    """The text of `answer.as_json()`, with `path` read from `con`, in which the answer was computed without it."""
    return as_parts(answer.as_json() | {"path": _rows(con, catalog)})


def as_parts(members: dict[str, Any]) -> Iterator[str]:
    """An object as `json.dumps` writes it, member by member; a member that is an iterator gives its own parts."""
    for at, (name, value) in enumerate(members.items()):
        yield f"{', ' if at else '{'}{json.dumps(name)}: "
        if isinstance(value, Iterator):
            yield from value
        else:
            yield json.dumps(value, default=str)
    yield "}"


def _rows(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> Iterator[str]:
    # The model's SQL is part of the query: creating its table would take as long again, for columns not needed here.
    found = con.execute(
        "SELECT event_id, name, edge_type, duration_ns / 1000.0, bound_by "
        f"FROM (\n{catalog.models['critical_path'].sql}\n) ORDER BY seq"
    )
    text = _Texts()
    between = "["
    while rows := found.fetchmany(_ROWS):
        yield between + ", ".join(
            [
                f'{{"event_id": {event}, "name": {text[name]}, "edge_type": {text[kind]}, '
                f'"duration_us": {duration!r}, "bound_by": {text[bound]}}}'
                for event, name, kind, duration, bound in rows
            ]
        )
        between = ", "
    yield "]" if between != "[" else "[]"


class _Texts(dict[str | None, str]):
    """Returns a text as JSON; cached, because names repeat."""

    def __missing__(self, value: str | None) -> str:
        self[value] = written = json.dumps(value)
        return written
