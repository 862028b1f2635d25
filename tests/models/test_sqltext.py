"""Values as SQL text: they survive the round trip, and DuckDB needs no pandas for them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from pipelines.models.sqltext import file_list, literal, quoted, row


@pytest.mark.parametrize("value", ["", "it's", 'a\\b\n"c" -- d; $1 ?', "日本", 0, -(2**63) + 1, 2**63 - 1, None])
def test_there_and_back(value: str | int | None) -> None:
    assert duckdb.execute(f"SELECT {literal(value)}").fetchall() == [(value,)]


def test_times_are_utc_without_zone() -> None:
    now = datetime(2026, 11, 21, 5, 30, 0, 123456, UTC)
    assert duckdb.execute(f"SELECT {literal(now)}").fetchall() == [(now.replace(tzinfo=None),)]


def test_rows_and_lists() -> None:
    assert row([1, "a", None]) == "(1, 'a', NULL)"
    assert file_list([Path("/a'b"), Path("/c")]) == "['/a''b', '/c']"
    assert quoted(Path("/a")) == "'/a'"
    with pytest.raises(TypeError, match="cannot write as SQL: float"):
        literal(1.5)  # type: ignore[arg-type]


def test_a_nul_does_not_end_the_statement() -> None:
    text = "a'\0b\0"
    with duckdb.connect() as con:
        assert con.execute(f"SELECT {quoted(text)} || 'c'").fetchall() == [(text + "c",)]


@pytest.mark.slow  # tests/faces/cli/test_start.py checks the imports of a query
def test_publishing_imports_no_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; from pathlib import Path; from pipelines.lake import Lake; from tests.lake.world import *\n"
        "lake = Lake(sys.argv[1]); lake.known_traces(); do_publish(lake.root); print('pandas' in sys.modules)"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # other tests delete old entries
    command = [sys.executable, "-c", code, str(tmp_path)]
    for _ in range(2):  # the first run determines the types of the tables
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.split() == ["False"]
