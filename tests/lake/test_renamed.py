"""Tables and columns with a new name: old names still answer, and so do lakes that an older version wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.ibis_tables import open_tables
from pipelines.lake import Lake
from pipelines.lake.commit import manifest
from pipelines.lake.layout import table_files
from pipelines.lake.publish.analyst_file import publish
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.renamed import old_columns, old_tables
from pipelines.runs.check import check
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.fleet.op_job.make import UNIT, Shape, write_job

NEW = sorted({*old_tables().values()})
COLUMNS = {new: columns for new in load_catalog().public if (columns := old_columns(new))}
STORED = sorted(table for table in {*NEW, *COLUMNS} if load_catalog().models[table].kind != "view")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    lake = Lake(folder / "lake")
    (folder / "job").mkdir()
    write_job(folder / "job", Shape(pp=2, dp=3, steps=(1,), batches=2), lambda key: (1 + 20 * key[1]) * UNIT)
    spec = CaptureSpec(ranks=2, steps=2, straggler=1, seed=3)
    ingest([*write_capture(spec, folder / "in").paths, folder / "job"], lake)
    materialize_all(lake, STORED)
    publish(lake)
    return lake.root


@pytest.fixture
def today(made: Path, tmp_path: Path) -> Lake:
    shutil.copytree(made, tmp_path / "today")
    return Lake(tmp_path / "today")


@pytest.fixture
def older(made: Path, tmp_path: Path) -> Lake:
    """The same lake with the folders, columns and logs of the version before the names changed."""
    shutil.copytree(made, tmp_path / "older")
    lake = Lake(tmp_path / "older")
    names = {new: old for old, new in old_tables().items()}
    for table in STORED:
        for path in table_files(lake.root, table):
            _with_old_columns(path, old_columns(table))
    for new, old in names.items():
        if (lake.root / new).exists():
            (lake.root / new).rename(lake.root / old)
    for batch in manifest.logged_batches(lake.root):
        log, keys = manifest.read(lake.root, batch), manifest.read_keys(lake.root, batch)
        assert log
        records = {
            names.get(t, t): manifest.describe(next(lake.root.glob(f"{names.get(t, t)}/*/{batch.batch_id}.parquet")))
            for t in log.records
        }
        manifest.rewrite(lake.root, batch, records, keys or {})
    return lake


def _with_old_columns(path: Path, columns: dict[str, str]) -> None:
    if columns:
        told = ", ".join(f"{new} AS {old}" for old, new in columns.items())
        rows = f"SELECT * RENAME ({told}) FROM read_parquet('{path}', hive_partitioning = false)"
        found = duckdb.execute(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')").fetchall()
        version = dict(found)["tracelake_version"]
        duckdb.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, KV_METADATA {{tracelake_version: '{version}'}})")


def rows(con: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """The rows of a table with its columns of today, in an order of their own."""
    columns = [column.name for column in load_catalog().models[table].columns]
    return sorted(map(repr, con.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()))


@pytest.fixture
def published(today: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(publish(today)), read_only=True) as con:
        yield con


def test_old_names_are_free_and_new_ones_are_there() -> None:
    catalog = load_catalog()
    assert {*old_tables()}.isdisjoint(catalog.models)
    assert {*NEW} <= {*catalog.public}
    for table, columns in COLUMNS.items():
        there = {column.name for column in catalog.models[table].columns}
        assert {*columns.values()} <= there and {*columns}.isdisjoint(there)


def test_every_declared_column_is_of_a_table() -> None:
    declared = duckdb.sql("FROM read_csv('sql/rules/renamed.csv', header = true, comment = '#')").fetchall()
    columns = [old for old, _ in declared if "." in old]
    assert len(columns) == sum(map(len, COLUMNS.values()))
    assert all(old.split(".")[0] == new.split(".")[0] for old, new in declared if "." in old)


@pytest.mark.parametrize("old", sorted(old_tables()))
def test_a_table_answers_under_its_old_name_too(old: str, published: duckdb.DuckDBPyConnection, today: Lake) -> None:
    new = old_tables()[old]
    (n,) = published.execute(f"SELECT count(*) FROM {new}").fetchall()[0]
    assert n > 0
    for con in (published, today.connect([old])):
        assert con.execute(f"SELECT count(*) FROM {old}").fetchall() == [(n,)]
        there = {name for name, *_ in con.execute(f"DESCRIBE {old}").fetchall()}
        assert {*old_columns(new), *old_columns(new).values()} <= there
    ((told,),) = published.execute(f"SELECT comment FROM duckdb_views() WHERE view_name = '{old}'").fetchall()
    assert new in told


def test_a_lake_of_an_older_version_says_the_same(today: Lake, older: Lake) -> None:
    assert [p for t in old_tables() for p in older.root.glob(f"{t}/*/*.parquet")]
    assert older.broken() == [] and check(older).faults == []
    with (
        duckdb.connect(str(publish(today)), read_only=True) as now,
        duckdb.connect(str(publish(older)), read_only=True) as then,
        older.connect(STORED) as unpublished,
    ):
        for table in STORED:
            assert rows(then, table) == rows(now, table) == rows(unpublished, table), table


def test_an_older_lake_is_computed_anew_where_it_lies(older: Lake, today: Lake) -> None:
    """No batch has a table twice, however often it is computed; new batches take the new name."""
    before = {table: [path.name for path in table_files(older.root, table)] for table in NEW}
    materialize_all(older, [*old_tables()], force=True)
    for table in NEW:
        files = [path for name in (table, *old_tables()) if old_tables().get(name, name) == table
                 for path in older.root.glob(f"{name}/*/*.parquet")]  # fmt: skip
        assert sorted(path.name for path in files) == before[table]
        assert {path.parts[-3] for path in files} <= {*old_tables()}
    assert check(older).faults == []
    with duckdb.connect(str(publish(today))) as now, duckdb.connect(str(publish(older))) as then:
        for table in NEW:
            assert rows(then, table) == rows(now, table), table


def test_damage_in_an_old_folder_is_found_and_mended(older: Lake, today: Lake) -> None:
    computed = next(t for t in sorted(old_tables()) if old_tables()[t] in load_catalog().of_captures)
    (path,) = older.root.glob(f"{computed}/*/*.parquet")
    os.truncate(path, path.stat().st_size // 2)
    assert [(one.table, one.path) for one in older.broken({old_tables()[computed]})] == [(old_tables()[computed], path)]
    (fault,) = check(older, repair=True).faults
    assert (fault.table, fault.repaired) == (old_tables()[computed], "computed again")
    assert check(older).faults == []
    with duckdb.connect(str(publish(today))) as now, duckdb.connect(str(publish(older))) as then:
        assert rows(then, old_tables()[computed]) == rows(now, old_tables()[computed])
    path.unlink(missing_ok=True)


def test_commands_know_both_names(today: Lake) -> None:
    old, new = next((old, new) for old, new in old_tables().items() if new in load_catalog().of_captures)

    def told(*words: object) -> str:
        found = CliRunner().invoke(app, [*map(str, words), "--lake", str(today.root)])
        assert found.exit_code == 0, found.output
        return found.output

    for path in table_files(today.root, new):  # computed, because it is asked for by its old name
        today.take_away(manifest.Batch(path.stem), [new])
    assert told("sql", f"SELECT count(*) > 0 AS n FROM {old}", "--format", "json") == '[{"n": true}]\n'
    assert f"renamed to {new}" in told("tables") and f"{old} is called {new} now" in told("tables", old)
    assert told("materialize", old, "--json") == "[]\n"
    asked = ["sql", "SELECT left_out FROM capture_ranks", "--lake", str(today.root)]
    assert "capture_ranks.left_out_reason now" in CliRunner().invoke(app, asked).output.replace("\n", " ")
    with open_tables(today, old).con as con:
        assert con.execute(f"SELECT count(*) FROM {old}").fetchall()[0][0] > 0


def test_files_of_an_older_version_have_names_and_dates_too(today: Lake, made: Path) -> None:
    """`file` and `started_at` follow from what was always stored: published or not, as where they are stored."""
    asked = "SELECT trace_id, file, started_at FROM traces ORDER BY trace_id"
    with duckdb.connect(str(publish(Lake(made))), read_only=True) as con:
        stored = con.execute(asked).fetchall()
    for path in table_files(today.root, "traces"):
        rows = f"SELECT * EXCLUDE (file, started_at) FROM read_parquet('{path}', hive_partitioning = false)"
        duckdb.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    for batch in manifest.logged_batches(today.root):
        log, keys = manifest.read(today.root, batch), manifest.read_keys(today.root, batch)
        assert log
        files = {t: next(today.root.glob(f"{t}/*/{batch.batch_id}.parquet")) for t in log.records}
        manifest.rewrite(today.root, batch, {t: manifest.describe(file) for t, file in files.items()}, keys or {})
    (today.root / "analyst.duckdb").unlink()
    with duckdb.connect(str(publish(today)), read_only=True) as now, today.connect(["traces"]) as unpublished:
        assert now.execute(asked).fetchall() == stored == unpublished.execute(asked).fetchall()
    assert stored and all(name.endswith(".json.gz") and at.year > 2001 for _, name, at in stored)
