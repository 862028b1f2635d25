"""The initial content of every analysts' file: built once, cached per user, rebuilt if it is damaged or outdated."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.names import ANALYST
from pipelines.lake.publish import empty_file
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.publish.contents import column_types
from pipelines.lake.publish.empty_file import Statements, begin, refusal
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from tests.effort import SLOW
from tests.lake.world import capture

QUERIES = (
    "SELECT table_name, comment, column_count FROM duckdb_tables() ORDER BY 1",
    "SELECT view_name, comment, sql FROM duckdb_views() WHERE NOT internal ORDER BY 1",
    "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal ORDER BY 1, column_index",
    "SELECT count(*) FROM events",
    "FROM kernel_classes ORDER BY ALL",
)


def published(lake: Lake) -> list[list[tuple]]:
    """Publish the lake's file from scratch, and return its tables, columns, comments and some rows."""
    publish(lake, anew=True)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        return [con.execute(query).fetchall() for query in QUERIES]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tracelake"


def test_what_is_kept_is_used_and_a_broken_one_is_not(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> list[list[tuple]]:
        """Build a file of all tables and return its content.

        Without SLOW it has only some, because all of them take a second.
        """
        catalog = load_catalog()
        types = column_types(catalog)
        tables = list(types) if SLOW else ["traces", "events", "kernels", "kernel_classes"]
        begin(tmp_path / name, catalog, Statements(catalog, types, tables))
        with duckdb.connect(str(tmp_path / name), read_only=True) as con:
            return [con.execute(query).fetchall() for query in QUERIES]

    (cache / ".empty-killed").mkdir(parents=True)
    os.utime(cache / ".empty-killed", (0, 0))
    first = made("first")
    assert first[-1]
    assert not list(cache.glob(".empty-*"))
    (kept,) = cache.glob("empty-*.duckdb")
    with monkeypatch.context() as patch:
        patch.setattr(empty_file, "keep_file", lambda *_: pytest.fail("it was made anew"))
        assert made("kept") == first
    broken = bytearray(kept.read_bytes())
    broken[len(broken) // 2] ^= 1
    kept.write_bytes(broken)
    assert made("anew") == first
    (mended,) = cache.glob("empty-*.duckdb")
    assert mended.read_bytes() != broken


@pytest.mark.slow  # 1 CPU s; the test above has a damaged cache file
def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder would be")
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in", ranks=1), lake)
    assert published(lake)[3] == [(8,)]


def test_another_comment_column_or_rule_is_another_file(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = load_catalog()
    types, rule = column_types(catalog), "kernel_classes"
    other_rules = tmp_path / "kernel_classes.csv"
    other_rules.write_bytes(catalog.models[rule].path.read_bytes() + b"\n")
    others = [
        (types, {"kernels": replace(catalog.models["kernels"], doc="Something else.")}),
        ({**types, "kernels": [*types["kernels"], ("more", "INTEGER")]}, {}),
        (types, {rule: replace(catalog.models[rule], path=other_rules)}),
    ]
    for number, (kinds, models) in enumerate(others):
        order = ["kernels", rule]
        begin(tmp_path / f"{number}.duckdb", catalog, Statements(catalog, types, order))
        before = set(cache.glob("empty-*"))
        other = replace(catalog, models={**catalog.models, **models})
        begin(tmp_path / f"{number}-other.duckdb", other, Statements(other, kinds, order))
        assert len(set(cache.glob("empty-*")) - before) == 1, number
    assert len(list(cache.glob("empty-*"))) == 3


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM refused",
        "FROM refused",
        "SELECT n FROM refused WHERE cat = 'x'",
        "SELECT cat FROM refused WHERE n > 3 AND cat IN ('x', 'y') GROUP BY cat",
        "SELECT n FROM refused JOIN (SELECT 'x' AS cat) USING (cat)",
    ],
)
def test_what_is_refused_is_no_empty_answer(query: str) -> None:
    with duckdb.connect() as con:
        con.execute(f"CREATE VIEW refused AS {refusal([('cat', 'VARCHAR'), ('n', 'BIGINT')], 'it is damaged')}")
        with pytest.raises(duckdb.Error, match="it is damaged"):
            con.execute(query).fetchall()
