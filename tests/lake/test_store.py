"""Names, versions and views of a lake."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.base.paths import UnusablePath
from pipelines.lake import Batch, Lake
from pipelines.lake.commit.catalog_file import rebuild
from pipelines.lake.names import ANALYST, table_file, time_in_id
from pipelines.lake.publish.contents import column_types
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.lake.world import capture, write_trace


def test_a_batch_knows_its_day() -> None:
    assert Batch("20261121T053000123456-1f2e3d4c").day == "2026-11-21"
    assert Batch.new().day.startswith("20")
    with pytest.raises(ValueError, match="not a batch id"):
        _ = Batch("latest").day


def test_after_a_batch_of_a_clock_that_was_years_ahead_no_other_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, trace = Lake(tmp_path / "lake"), write_trace(tmp_path / "0.json", 0)
    for ahead in (timedelta(hours=23), timedelta(days=3653)):
        name = f"{time_in_id(datetime.now(UTC) + ahead)}-0a1b2c3d"
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "new", lambda name=name: Batch(name))
            assert lake.new_batch() == Batch(name)
            if ahead.days > 1:
                ingest([trace], lake)
    with pytest.raises(UnusablePath, match=f"batch {name} is of the future.*check --rebuild"):
        ingest([trace], lake)
    for folder in lake.root.glob(f"*/day={Batch(name).day}"):  # as the message advises
        shutil.rmtree(folder)
    rebuild(lake.root)
    assert [row.status for row in ingest([trace], lake).rows] == ["ok"]


def test_files_lie_where_any_engine_finds_them(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in"), lake)
    batch = lake.batches()[0]
    for table in ("traces", "events", "findings", "rejects"):
        assert table_file(lake.root, table, batch).is_file()
    assert not list(lake.root.glob(".staging/*"))
    hive = f"{lake.root}/events/*/*.parquet"
    days = duckdb.sql(f"SELECT DISTINCT day FROM read_parquet('{hive}', hive_partitioning = true)").fetchall()
    assert [str(day) for (day,) in days] == [batch.day]


def test_the_events_of_a_batch_are_sorted_by_trace(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in", ranks=5), lake)
    file = table_files(lake.root, "events")[0]
    keys = duckdb.execute("SELECT trace_id, event_id FROM read_parquet(?)", [str(file)]).fetchall()
    assert keys == sorted(keys)
    assert len({trace_id for trace_id, _ in keys}) == 5


@pytest.mark.slow  # test_empty_file.py has an empty lake
def test_a_full_lake_is_published_with_the_same_types_and_comments(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in"), lake)
    materialize(lake)
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        for table, columns in column_types(load_catalog()).items():
            described = con.execute(f"DESCRIBE {table}").fetchall()
            assert {(row[0], row[1]) for row in described} == set(columns), table
        bare = con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL "
            "AND NOT (schema_name = 'tracelake' AND contains(table_name, ' ')) UNION ALL "  # except the parts of views
            "SELECT table_name, '' FROM duckdb_tables() WHERE comment IS NULL UNION ALL "
            "SELECT view_name, '' FROM duckdb_views() WHERE NOT internal AND comment IS NULL"
        ).fetchall()
        assert bare == []
        kinds = dict(con.execute("SELECT table_name, table_type FROM information_schema.tables").fetchall())
    assert kinds["events"] == kinds["kernels"] == "VIEW"
    assert kinds["traces"] == kinds["temporal_breakdown"] == kinds["kernel_classes"] == "BASE TABLE"


@pytest.mark.slow  # tests/runs/store covers outdated tables
def test_files_of_an_older_model_read_as_null_where_they_lack_a_column(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for seed in (1, 2):
        ingest([write_trace(tmp_path / f"{seed}.json", seed)], lake)
    materialize(lake, ["kernels"])
    old = table_files(lake.root, "kernels")[0]
    staged = tmp_path / "old.parquet"
    duckdb.execute(f"COPY (SELECT * EXCLUDE (rule_id) FROM read_parquet('{old}')) TO '{staged}'")
    lake.put("kernels", lake.batches()[0], staged)
    with lake.connect(["traces", "kernels"]) as con:
        assert con.execute("SELECT count(*), count(rule_id) FROM kernels").fetchall() == [(8, 4)]
    materialize(lake, ["kernels"])  # the rewritten file has no version, so it is recomputed
    with lake.connect(["traces", "kernels"]) as con:
        assert con.execute("SELECT count(*), count(rule_id) FROM kernels").fetchall() == [(8, 8)]
