"""A DuckDB version that would lose part of an entry is rejected by name before the first file is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.base import database
from pipelines.base.database import WrongDuckDB
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.kineto import events_file, piece, reader_check
from pipelines.readers.kineto.reader import connect_reader
from pipelines.readers.kineto.reader_check import check_reader
from tests.lake.world import capture

# What a DuckDB version might change in the reader's queries → the column that the error names.
LOST = {
    "args as NULL": ("known_keys", lambda sql: f"SELECT * REPLACE (CAST(NULL AS JSON) AS args) FROM ({sql})", "args"),
    "digits of times": ("known_keys", lambda sql: f"SELECT * REPLACE (left(ts, 1) AS ts) FROM ({sql})", "ts"),
    "times as doubles": ("exact_times", lambda sql: f"SELECT * REPLACE (trunc(ts_us) AS ts_us) FROM ({sql})", "ts_us"),
    "a name": ("exact_times", lambda sql: f"SELECT * REPLACE (upper(name) AS name) FROM ({sql})", "name"),
    "unknown keys": (
        "all_keys",
        lambda sql: f"SELECT * REPLACE (CAST(NULL AS VARCHAR) AS unknown) FROM ({sql})",
        "unknown",
    ),
}


@pytest.fixture(autouse=True)
def con(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # the cache is empty
    with database.connect(config={"threads": 1}) as opened:
        yield opened


def test_this_version_reads_every_key() -> None:
    connect_reader().close()


@pytest.mark.parametrize(("query", "lose", "column"), LOST.values(), ids=LOST)
def test_what_a_version_loses_is_refused(
    con: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    lose: Callable[[str], str],
    column: str,
) -> None:
    right: Callable[..., str] = getattr(piece, query)
    monkeypatch.setattr(reader_check, query, lambda *values, **more: lose(right(*values, **more)))
    with pytest.raises(WrongDuckDB, match=rf"DuckDB {duckdb.__version__} reads {column} of an entry") as refused:
        check_reader(con)
    assert "pip install" in refused.value.hint
    with pytest.raises(WrongDuckDB):  # a failed check is not cached as passed
        check_reader(con)


def test_ingestion_stops_with_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If DuckDB fails the check, ingestion stops and rejects no file, because no file is at fault."""
    monkeypatch.setattr(events_file, "_idle", [])  # discard connections that were already checked
    monkeypatch.setattr(reader_check, "known_keys", lambda *_, **__: "SELECT error('x')")
    with pytest.raises(WrongDuckDB):
        ingest(capture(tmp_path / "in"), Lake(tmp_path / "lake"))
    assert list((tmp_path / "lake").rglob("*.parquet")) == []


def test_keys_that_are_not_seen_are_refused(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Callable[..., frozenset[str]] = piece.keys_in
    monkeypatch.setattr(reader_check, "keys_in", lambda *values: seen(*values) & piece.KNOWN_KEYS)
    with pytest.raises(WrongDuckDB, match="reads keys of an entry"):
        check_reader(con)


def test_what_cannot_be_read_at_all_is_refused(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("FROM gone()", "SELECT * FROM no_table", "SELECT error('x')"):
        monkeypatch.setattr(reader_check, "known_keys", lambda *_, wrong=wrong, **__: wrong)
        with pytest.raises(WrongDuckDB, match="cannot read an entry"):
            check_reader(con)


def test_it_is_done_once(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    check_reader(con)
    calls: list[Any] = []
    monkeypatch.setattr(reader_check, "keys_in", lambda *values: calls.append(values))
    check_reader(con)
    assert calls == []
    monkeypatch.setattr(duckdb, "__version__", "9.9.9")  # another version may read differently
    with pytest.raises(TypeError):
        check_reader(con)
    assert len(calls) == 1
