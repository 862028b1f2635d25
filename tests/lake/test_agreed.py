"""Columns with an agreed name: analysts see it with the stored value, and the older name beside it."""

from __future__ import annotations

import csv
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.base.datafiles import rule_rows
from pipelines.faces.cli.trace.gantt import run_simulated
from pipelines.lake import Lake
from pipelines.lake.agreed import agreed_columns, shown_columns, shown_rows, with_older
from pipelines.lake.commit import manifest
from pipelines.lake.layout import table_files
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.publish.contents import column_types, types_shown
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.engines.spark.everything import lake_of_everything
from tests.lake.world import write_trace
from tests.models.test_column_names import EXCEPTIONS, RULES, faults, reserved

ROWS = rule_rows("agreed_names")
TABLES = sorted({row["table_name"] for row in ROWS})
# By the ending of the older name: what its values are multiplied with. Not taken from the file that is tested.
UNITS = {"_share": 100, "share_last": 100, "_us": 1_000, "_ms": 1_000_000}


def factor(older: str) -> int | None:
    return next((by for ending, by in UNITS.items() if older.endswith(ending)), None)


def test_each_column_with_an_older_name_has_an_agreed_one_and_no_other_has() -> None:
    with EXCEPTIONS.open(encoding="utf-8", newline="") as file:
        older = {(row["table"], row["column"]) for row in csv.DictReader(file) if row["why"] != "term"}
    assert {(row["table_name"], row["older"]) for row in ROWS} == older
    assert len(ROWS) == len(older)


def test_agreed_names_keep_the_rules_and_are_free() -> None:
    catalog = load_catalog()
    for table in TABLES:
        names = [one.name for one in agreed_columns(table)]
        there = {column.name for column in catalog.models[table].columns} | {"batch_id"}
        assert len(set(names)) == len(names) and there.isdisjoint(names), table
        assert reserved().isdisjoint(names), table
        assert [name for name in names if any(re.search(rule, name) for rule in RULES)] == [], table
    # Where the rule says one name for all, it is that name.
    for (table, column), instead in faults().items():
        names = {one.older: one.name for one in agreed_columns(table)}
        if column in names and instead in ("communication", "percent", "gigabytes_per_s", "duration_ns"):
            assert instead in names[column], (table, column)


def test_a_join_with_traces_or_captures_names_one_column() -> None:
    """`SELECT start_ns FROM idle_gaps JOIN traces USING (trace_id)` was not ambiguous, and is not."""
    catalog = load_catalog()
    for mark in ("traces", "captures"):
        names = {one.name for one in agreed_columns(mark)}
        assert len(names) == 2
        for other in (table for table in catalog.public if table != mark):
            assert names.isdisjoint(column.name for column in shown_columns(catalog.models[other])), other


def test_a_value_changes_where_the_unit_does() -> None:
    for row in ROWS:
        assert bool(row["expression"]) == bool(row["meaning"]) == (factor(row["older"]) is not None), row


def same(found: Any, stored: Any, by: int | None) -> bool:
    if stored is None or by is None:
        return found == stored
    return found is not None and math.isclose(found, stored * by, rel_tol=1e-12, abs_tol=0.5 if by != 100 else 0)


def assert_both_names_say_what_is_stored(lake: Lake, tables: list[str]) -> int:
    """Both names against the Parquet files; returns how many columns had a value."""
    told, stored_types = 0, column_types(load_catalog())
    stored = [table for table in tables if load_catalog().models[table].kind not in ("view", "rules")]
    with duckdb.connect(str(publish(lake)), read_only=True) as shown, lake.connect(stored) as files:
        for table in tables:
            columns = agreed_columns(table)
            key = [name for name, _ in stored_types[table] if name not in {one.older for one in columns}]
            order = ", ".join(f'"{name}"' for name in [*key, *(one.older for one in columns)])
            asked = ", ".join(f'{one.name}, "{one.older}"' for one in columns)
            rows = shown.execute(f"SELECT {asked} FROM {table} ORDER BY {order}").fetchall()
            if table in stored:
                older = ", ".join(f'"{one.older}"' for one in columns)
                kept = files.execute(f"SELECT {older} FROM {table} ORDER BY {order}").fetchall()
            else:
                kept = [row[1::2] for row in rows]
            assert len(rows) == len(kept), table
            for place, one in enumerate(columns):
                by = factor(one.older)
                for row, value in zip(rows, kept, strict=True):
                    assert row[2 * place + 1] == value[place], (table, one.older)
                    assert same(row[2 * place], value[place], by), (table, one.name, row)
                told += any(value[place] is not None for value in kept)
    return told


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("agreed")
    made = Lake(folder / "lake")
    ingest(list(write_capture(CaptureSpec(ranks=2, steps=1, seed=3), folder / "in").paths), made)
    materialize_all(made, ["kernels", "launches", "queue_length", "findings"])
    return made


@pytest.fixture(scope="module")
def shown(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        yield con


def test_both_names_say_what_is_stored(lake: Lake) -> None:
    rules = [table for table in TABLES if load_catalog().models[table].kind == "rules"]
    tables = ["events", "kernels", "launches", "queue_length", "traces", *rules]
    assert assert_both_names_say_what_is_stored(lake, tables) >= 10


@pytest.mark.slow
def test_all_tables_say_what_is_stored_under_both_names(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = lake_of_everything(tmp_path, shared / "traces")
    n = assert_both_names_say_what_is_stored(everything, TABLES)
    assert n >= 60  # of 83: no spans were recorded, and no Flight Recorder's times
    # An update adds a capture and a run of a schedule.
    monkeypatch.setattr("pipelines.lake.publish.analyst_file.build", None)
    write_capture(CaptureSpec(ranks=3, steps=2, straggler=1, seed=9), tmp_path / "job" / "9")
    ingest([tmp_path / "job" / "9"], everything, job="synthetic")
    run_simulated(everything, "fused_sparse_dist")
    materialize_all(everything)
    assert_both_names_say_what_is_stored(everything, TABLES)


def test_every_table_has_the_names_types_and_meanings_that_are_told(shown: duckdb.DuckDBPyConnection) -> None:
    """What `tracelake tables`, docs/tables.md, the console and MCP say is what the file has."""
    catalog = load_catalog()
    found = shown.execute(
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE schema_name = 'main'"
    ).fetchall()
    there = {(table, column): (kind, comment) for table, column, kind, comment in found}
    for table in TABLES:
        kinds = dict(types_shown(catalog)[table])
        columns = shown_columns(catalog.models[table])
        for column in columns:
            assert there[table, column.name] == (kinds[column.name], column.doc), (table, column.name)
        names = [one.name for one in columns]
        for one in agreed_columns(table):
            assert f"{one.name}" in dict((c.name, c.doc) for c in columns)[one.older]
            assert names.index(one.name) < names.index(one.older) and names.index(one.older) >= len(names) - len(
                agreed_columns(table)
            )


def test_the_agreed_name_stands_where_the_older_one_did(shown: duckdb.DuckDBPyConnection) -> None:
    for table in ("kernels", "events", "devices", "findings", "step_pipeline", "schedule_spans"):
        agreed = {one.older: one.name for one in agreed_columns(table)}
        stored = [agreed.get(name, name) for name, _ in column_types(load_catalog())[table]]
        found = [row[0] for row in shown.execute(f"DESCRIBE {table}").fetchall()]
        assert found == [*stored, *agreed], table


@given(
    st.sampled_from([row for row in ROWS if row["expression"]]),
    st.one_of(st.none(), st.floats(0, 1), st.integers(0, 10**10)),
)
def test_other_units_are_computed(row: dict[str, str], value: float | None) -> None:
    table, older = row["table_name"], row["older"]
    kind = dict(column_types(load_catalog())[table])[older]
    given_value = int(value) if kind == "BIGINT" and value is not None else value
    nulls = ", ".join(f'NULL AS "{one.older}"' for one in agreed_columns(table) if one.older != older)
    rows = f"SELECT CAST(? AS {kind}) AS {older}{f', {nulls}' if nulls else ''} -- the end"
    ((found, kept),) = duckdb.execute(
        f"SELECT {row['agreed']}, {older} FROM ({shown_rows(table, rows)})", [given_value]
    ).fetchall()
    assert kept == given_value and same(found, given_value, factor(older))
    assert found is None or not row["agreed"].endswith("_ns") or isinstance(found, int)


def test_a_column_that_older_files_lack_is_null() -> None:
    types = column_types(load_catalog())["kernels"]
    rows = with_older("kernels", "SELECT 7 AS event_id, 3 AS ts_ns", types)
    found = duckdb.sql(
        f"SELECT event_id, start_ns, duration_ns, dur_ns FROM ({shown_rows('kernels', rows)})"
    ).fetchall()
    assert found == [(7, 3, None, None)]


def test_models_and_files_keep_the_older_names(lake: Lake) -> None:
    """Programs that read the lake's files, and lakes that exist, are as they were."""
    with lake.connect(["kernels"]) as con:
        names = [row[0] for row in con.execute("DESCRIBE kernels").fetchall()]
    assert {"ts_ns", "dur_ns"} <= {*names} and {"start_ns", "duration_ns"}.isdisjoint(names)


@pytest.mark.slow
def test_a_lake_of_an_older_version_without_the_column_is_shown(lake: Lake, tmp_path: Path) -> None:
    """Until the table is computed again: the column is NULL under both names, and the others are there."""
    older = Lake(tmp_path / "older")
    shutil.copytree(lake.root, older.root)
    (path,) = table_files(older.root, "kernels")
    rows = f"SELECT * EXCLUDE (dur_ns) FROM read_parquet('{path}', hive_partitioning = false)"
    duckdb.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, KV_METADATA {{tracelake_version: 'older'}})")
    for batch in manifest.logged_batches(older.root):
        log, keys = manifest.read(older.root, batch), manifest.read_keys(older.root, batch)
        assert log
        files = {table: next(older.root.glob(f"{table}/*/{batch.batch_id}.parquet")) for table in log.records}
        manifest.rewrite(older.root, batch, {t: manifest.describe(file) for t, file in files.items()}, keys or {})
    with duckdb.connect(str(publish(older)), read_only=True) as con:
        counted = "SELECT count(*), count(start_ns), count(ts_ns), count(duration_ns), count(dur_ns) FROM kernels"
        ((n, *others),) = con.execute(counted).fetchall()
    assert n > 0 and others == [n, n, 0, 0]


@pytest.mark.slow
def test_a_file_that_is_updated_has_both_names_of_what_is_added(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = Lake(tmp_path / "grown")
    shutil.copytree(lake.root, grown.root)
    ingest([write_trace(tmp_path / "first.json", 1)], grown)
    publish(grown)
    cut = write_trace(tmp_path / "cut.json", 2)
    cut.write_text(cut.read_text()[:-2])  # which is a row of findings
    ingest([cut], grown)
    monkeypatch.setattr("pipelines.lake.publish.analyst_file.build", None)  # it is updated, not built anew
    assert assert_both_names_say_what_is_stored(grown, ["findings", "traces", "kernels", "events"]) == 7
    with duckdb.connect(str(grown.root / "analyst.duckdb"), read_only=True) as con:
        found = con.execute("SELECT check_name FROM findings JOIN traces USING (trace_id) WHERE file = 'cut.json'")
        assert "truncated" in {name for (name,) in found.fetchall()}
