"""Rows from Python: a declared table stores them unchanged, with every type, NULL, and any text."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models import python_tables
from pipelines.models.python_tables import (
    _array,
    create_table,
    fetch_columns,
    input_table,
    insert_columns,
    insert_parts,
    insert_rows,
)

_COLUMNS = (
    ("number", "BIGINT", "A number."),
    ("share", "DOUBLE", "A share."),
    ("is_set", "BOOLEAN", "A flag."),
    ("name", "VARCHAR", "A text."),
)
input_table("_of_test", layer="canonical", columns=_COLUMNS)
_VALUES = (
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(st.characters(codec="utf-8")),
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(*(st.none() | values for values in _VALUES)), max_size=8))
def test_rows_arrive_as_they_are(rows: list[tuple[Any, ...]]) -> None:
    columns = {name: [row[place] for row in rows] for place, (name, *_) in enumerate(_COLUMNS)}
    assert _inserted(columns) == rows


def test_a_column_that_is_not_given_is_null() -> None:
    assert _inserted({"name": ["a", "b"]}) == [(None, None, None, "a"), (None, None, None, "b")]


def test_a_fraction_is_no_number_of_nanoseconds() -> None:
    with pytest.raises(TypeError):
        _inserted({"number": [1, 2.5]})


def test_rows_may_have_some_of_the_columns() -> None:
    with duckdb.connect() as con:
        create_table(con, "_of_test")
        insert_rows(con, "_of_test", [("a", 1), (None, 2)], ("name", "number"))
        insert_rows(con, "_of_test", [])
        assert con.execute("FROM _of_test").fetchall() == [(1, None, None, "a"), (2, None, None, None)]


@pytest.mark.parametrize(("characters", "sizes"), [(8, [2, 2, 1]), (3, [1, 1, 2, 1])])
def test_a_part_has_at_most_so_many_rows_and_ends_with_a_long_one(
    characters: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, parts = [(n, None, None, text) for n, text in enumerate(("abc", "defg", "h", "i", "j"))], []
    monkeypatch.setattr(python_tables, "_ROWS", 2)
    monkeypatch.setattr(python_tables, "_CHARACTERS", characters)
    monkeypatch.setattr(python_tables, "insert_rows", lambda _, __, part: parts.append(part))
    with duckdb.connect() as con:
        assert insert_parts(con, "_of_test", iter(rows)) == len(rows)
    assert [len(part) for part in parts if part] == sizes and [row for part in parts for row in part] == rows


def test_neither_pandas_nor_arrow_is_imported() -> None:
    """pandas and Arrow are not imported, because importing either takes longer than computing most tables."""
    code = (
        "import sys, duckdb\n"
        "from pipelines.models.python_tables import create_table, input_table, insert_columns\n"
        "input_table('t', layer='canonical', columns=(('number', 'BIGINT', ''), ('name', 'VARCHAR', '')))\n"
        "con = duckdb.connect()\n"
        "create_table(con, 't')\n"
        "insert_columns(con, 't', {'number': [1, None], 'name': ['a', None]})\n"
        "assert con.execute('SELECT * FROM t').fetchall() == [(1, 'a'), (None, None)]\n"
        "assert not {'pandas', 'pyarrow'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _inserted(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as con:
        create_table(con, "_of_test")
        insert_columns(con, "_of_test", columns)
        return con.execute("SELECT * FROM _of_test ORDER BY rowid").fetchall()


def test_flags_need_not_begin_with_a_byte() -> None:
    flags = [i % 3 == 0 for i in range(30)]
    assert _array(pa.array(flags)[11:]).tolist() == flags[11:]


@pytest.mark.parametrize("rows", [0, 1, 13, 300_000])
def test_columns_are_read_as_they_are(rows: int) -> None:
    query = (
        "SELECT i AS n, CAST(i % 100 AS INTEGER) AS small, i % 3 = 0 AS is_third, i / 2 AS half FROM range({}) AS r(i)"
    )
    with duckdb.connect() as con:
        plain = con.execute(query.format(rows)).fetchnumpy()
        columns = fetch_columns(con, query.format(rows))
    assert {name: (str(column.dtype), column.tolist()) for name, column in columns.items()} == {
        name: (str(column.dtype), column.tolist()) for name, column in plain.items()
    }


def test_a_column_with_null_cannot_be_read_so() -> None:
    with duckdb.connect() as con, pytest.raises((BufferError, ValueError, TypeError)):
        fetch_columns(con, "SELECT nullif(i, 3) AS n FROM range(5) AS r(i)")
