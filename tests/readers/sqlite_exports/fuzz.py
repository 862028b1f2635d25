"""Random changes of the tables of a small export, as data, for the tests of all readers of SQLite files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import ReadTrace, TraceRejected
from tests.harness import memory

CELLS = st.one_of(
    st.none(),
    st.sampled_from(
        [0, -1, 1, 2**32 - 1, 2**63 - 1, -(2**63), 1.5, "", "x", "12", "\x00", "\ud800".encode("utf-8", "replace")]
    ),
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=20),
    st.binary(max_size=20),
)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Draw changes of a small export, as data: tables and columns are selected by number."""
    number = st.integers(0, 10_000)
    step = st.one_of(
        st.tuples(st.just("drop table"), number),
        st.tuples(st.just("drop column"), number, number),
        st.tuples(st.just("set"), number, number, number, CELLS),
        st.tuples(st.just("set all"), number, number, CELLS),
        st.tuples(st.just("delete"), number, number),
        st.tuples(st.just("repeat"), number, number),
    )
    return draw(st.lists(step, min_size=1, max_size=6))


def apply(con: sqlite3.Connection, what: str, table_no: int, *rest: Any) -> None:
    tables = [name for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    if not tables:
        return
    table = tables[table_no % len(tables)]
    columns = [row[1] for row in con.execute(f'PRAGMA table_info("{table}")')]
    column = columns[rest[0] % len(columns)] if rest else ""
    row_no = rest[1] if what == "set" else rest[0] if rest else 0
    row_id = (
        f'SELECT rowid FROM "{table}" ORDER BY rowid LIMIT 1 OFFSET {row_no} % max(1, (SELECT count(*) FROM "{table}"))'
    )
    row = f"WHERE rowid = ({row_id})"
    if what == "drop table":
        con.execute(f'DROP TABLE "{table}"')
    elif what == "drop column" and len(columns) > 1:
        con.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif what == "set":
        con.execute(f'UPDATE "{table}" SET "{column}" = ? {row}', [rest[-1]])
    elif what == "set all":
        con.execute(f'UPDATE "{table}" SET "{column}" = ?', [rest[-1]])
    elif what == "delete":
        con.execute(f'DELETE FROM "{table}" {row}')
    elif what == "repeat":
        con.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" {row}')


def changed_by(change: list[tuple[Any, ...]], path: Path) -> Path:
    """Apply the steps to a file, and return its path."""
    with closing(sqlite3.connect(path)) as con:
        for step in change:
            apply(con, *step)
        con.commit()
    return path


def read_or_rejected(path: Path) -> ReadTrace | None:
    """Return the trace, or None if the file is rejected with a reason that does not report a bug."""
    try:
        return load_trace(memory(), path)
    except TraceRejected as error:
        assert error.path == str(path) and "please report" not in error.reason, error.reason
        return None


def distinct_traces(paths: Iterable[Path]) -> list[Path]:
    """Return the files that are traces, each content once.

    A lake never has a trace twice, and models reject duplicates.
    """
    path_by_id = {trace.trace_id: path for path in paths if (trace := read_or_rejected(path)) is not None}
    return list(path_by_id.values())
