"""Invariants of displayed rows: they are a prefix of the answer, exact, and a cut is announced."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.base.errors import WrongValue
from pipelines.base.foreign_text import visible
from pipelines.faces.cells import LONGEST, Cutter, Rows, is_number, rows_as_json, shown
from pipelines.faces.cli.lake.query import Format, _write_answer
from pipelines.faces.untrusted_queries import first_rows
from pipelines.lake.read.export import csv_parts, parquet_parts
from pipelines.lake.read.sandbox import Answer
from tests.effort import examples

ROWS = st.lists(st.tuples(st.text(max_size=8), st.integers(-(2**127), 2**127)), max_size=30)


class CountedRows:
    """An answer with these rows, which counts the rows that were read."""

    columns: tuple[str, ...] = ("text", "number")
    types: tuple[str, ...] = ("VARCHAR", "HUGEINT")

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows, self.n_read = rows, 0

    def parts(self, n: int) -> Iterator[list[tuple[Any, ...]]]:
        for at in range(0, len(self.rows), n):
            self.n_read += len(self.rows[at : at + n])
            yield self.rows[at : at + n]


@settings(max_examples=examples(400))
@given(ROWS, st.integers(1, 35), st.integers(1, 400))
def test_first_rows_are_a_prefix_and_a_cut_is_announced(rows: list[Any], most: int, most_bytes: int) -> None:
    answer: Any = CountedRows(rows)
    first = first_rows(answer, most, most_bytes)
    n = len(first.rows)
    assert first.rows == rows[:n] and n <= most
    assert bool(first.cut) == (n < len(rows))
    assert answer.n_read <= n + min(500, most + 1)  # the other rows are not computed
    sizes = [len(visible(text)) + 8 for text, _ in rows]
    assert n <= 1 or sum(sizes[:n]) <= most_bytes
    if n < len(rows):  # not cut too early
        assert n == most or sum(sizes[: n + 1]) > most_bytes


@pytest.mark.parametrize(
    "value", ["range(2500)", "{'a': range(2500)}", "MAP {1: range(2500)}", "repeat(chr(27), 2500)"]
)
def test_an_answer_is_cut_by_the_text_that_is_sent(value: str) -> None:
    """At most 10,000 characters of each cell's text are sent.

    This includes lists, structs and maps, with control characters as written.
    """
    answer = Answer(duckdb.sql(f"SELECT {value} AS v FROM range(200)"), 0)
    first = first_rows(answer, 10_000, 1_000_000, LONGEST)
    assert 90 <= len(first.rows) <= 100
    assert first.cut == f"the first {len(first.rows)} rows; there are more, and these are 1 MB of text"
    assert sum(len(text) for (text,) in rows_as_json(first)["rows"]) <= 1_000_000


@settings(max_examples=examples(400))
@given(ROWS)
def test_values_survive_javascript(rows: list[Any]) -> None:
    """Integers that JavaScript would round are sent as text. JavaScript reads every JSON number as a double."""
    shown = json.loads(json.dumps(rows_as_json(Rows(["t", "n"], ["VARCHAR", "HUGEINT"], rows, ""))), parse_int=float)
    assert [int(n) if isinstance(n, str) else int(float(n)) for _, n in shown["rows"]] == [n for _, n in rows]
    for text, _ in shown["rows"]:
        assert text == visible(text)


@settings(max_examples=examples(100))
@given(st.integers(0, 3 * LONGEST))
def test_only_long_texts_are_cut(n: int) -> None:
    shown = rows_as_json(Rows(["t"], ["VARCHAR"], [("x" * n,)], ""))
    ((text,),) = shown["rows"]
    assert (text == "x" * n, shown["n_cut"]) == ((True, 0) if n <= LONGEST else (False, 1))
    assert text.startswith("x" * min(n, LONGEST))


def test_every_type_of_duckdb_becomes_json() -> None:
    relation = duckdb.sql("SELECT * FROM test_all_types()")
    kept = []
    for name in relation.columns:  # a value that DuckDB cannot convert to Python is an error of the query
        try:
            kept.append((name, relation.select(f'"{name}"').fetchall()))
        except (ValueError, OverflowError, duckdb.Error):
            continue
    assert len(kept) > 40
    for name, rows in kept:
        json.dumps(rows_as_json(Rows([name], [""], rows, "")), allow_nan=False)


def test_what_json_does_not_allow_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Values that JSON does not allow are sent as text.

    Keys of a MAP have any type, as in `histogram(started_at)`, and a DOUBLE may be NaN.
    """
    answer = duckdb.sql("SELECT MAP {DATE '2026-01-02': ['nan'::DOUBLE]} AS days, 0e0 / 0 AS nothing")
    ((days, _),) = answer.fetchall()
    assert shown(days) == Cutter(100).cell(days) == '{"2026-01-02": ["nan"]}'
    _write_answer(Answer(answer, 0), Format.json, 0, False)  # as in `tracelake sql`
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == [
        {"days": {"2026-01-02": ["nan"]}, "nothing": "nan"}
    ]


def test_decimals_are_text_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Decimals are text in JSON, as docs/sql.md specifies."""
    _write_answer(Answer(duckdb.sql("SELECT 1.5 AS x, 1.5e0 AS y, 100.0 * 2 AS z"), 0), Format.json, 0, False)
    assert json.loads(capsys.readouterr().out) == [{"x": "1.5", "y": 1.5, "z": "200.0"}]


@pytest.mark.parametrize("value", ["[1]", "{'a': 1}", "MAP {'a': 1}", "INTERVAL 1 DAY"])
def test_what_csv_cannot_hold_is_refused_before_anything_is_written(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values that CSV cannot represent are refused before anything is written.

    `tracelake sql` refuses them, and so does a download of the console.
    """
    query = f"SELECT 1 AS n, {value} AS v"
    with pytest.raises(WrongValue, match=r"CSV cannot hold the column v, .*: convert it"):
        _write_answer(Answer(duckdb.sql(query), 0), Format.csv, 0, False)
    with pytest.raises(WrongValue, match="CSV cannot hold the column v"):
        next(csv_parts(Answer(duckdb.sql(query), 0), for_spreadsheet=False))
    assert capsys.readouterr().out == ""


def test_what_parquet_cannot_hold_is_refused_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT [1] AS n, INTERVAL 1 DAY AS v"
    with pytest.raises(WrongValue, match=r"Parquet cannot hold the column v, .*: convert it, CAST\(… AS VARCHAR\)$"):
        _write_answer(Answer(duckdb.sql(query), 0), Format.parquet, 0, False)
    with pytest.raises(WrongValue, match="Parquet cannot hold the column v"):
        next(parquet_parts(Answer(duckdb.sql(query), 0)))
    assert capsys.readouterr().out == ""


@settings(max_examples=examples(100))
@given(st.floats(1e-9, 1e15))
@example(2.25291e06)  # from an answer of `ask gaps`
def test_a_number_for_people_has_no_exponent_and_six_digits(value: float) -> None:
    text = shown(value)
    assert "e" not in text and float(text.replace(",", "")) == pytest.approx(value, rel=1e-5)
    assert value < 1e6 or re.fullmatch(r"\d{1,3}(,\d{3})+", text)


def test_text_for_people_and_what_is_a_number() -> None:
    """The text of each value is one line. Only numeric types are right-aligned, not types that contain them."""
    values = [None, 0.123456789, 12, "a\nb", ["x", 1], {"k": None}, True]
    assert [shown(value) for value in values] == [
        "NULL",
        "0.123457",
        "12",
        visible("a\nb"),
        '["x", 1]',
        '{"k": null}',
        "True",
    ]
    kinds = (
        "BIGINT",
        "DECIMAL(18,3)",
        "DOUBLE",
        "FLOAT",
        "UINTEGER",
        "VARCHAR",
        "INTERVAL",
        "BIGINT[]",
        "STRUCT(a INTEGER)",
    )
    assert [is_number(kind) for kind in kinds] == [True] * 5 + [False] * 4


def test_a_limit_of_integers_is_for_who_holds_them_as_doubles() -> None:
    big = 2**60 + 1
    assert (Cutter(10).cell(big), Cutter(10, 2**53).cell(big)) == (big, str(big))
