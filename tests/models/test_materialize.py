"""Model tables of batches: which are computed, when they are recomputed, and in which groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.names import ANALYST, STAGING
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.run import ModelRun, run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize, stale
from tests.effort import SLOW
from tests.lake.world import TABLES, capture, shown, write_trace


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in"), lake)
    return lake


@pytest.mark.slow  # 16 s
def test_all_public_tables_of_every_batch(lake: Lake, tmp_path: Path) -> None:
    ingest([write_trace(tmp_path / "more.json", 9)], lake)
    catalog, steps = load_catalog(), []
    done = materialize(lake, on_step=steps.append)
    assert {(d.table, d.batch) for d in done} == {(t, b) for t in catalog.materialized for b in lake.batches()}
    assert {d.table: d.n_rows for d in done if d.batch == lake.batches()[0]}["kernels"] == 12
    assert "kernels" in steps and "longest_path" in steps
    assert not list(lake.root.glob(".staging/*"))
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM kernels").fetchall() == [(16,)]


@pytest.mark.slow  # 3 s; the test above computes all tables of every batch
def test_groups_of_traces_give_the_same_as_all_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ["kernels", "launches", "temporal_breakdown", "critical_path"]
    if SLOW:
        tables = [name for name in load_catalog().materialized if name != "critical_path_windows"]
    materialize(lake, tables)
    whole, steps = shown(lake, ["traces", *tables]), []
    monkeypatch.setattr("pipelines.runs.materialize.per_trace.GROUP_EVENTS", 9)  # a trace has 8 events
    materialize(lake, tables, force=True, on_step=steps.append)
    assert shown(lake, ["traces", *tables]) == whole
    assert "kernels (group 3 of 3)" in steps
    file = str(table_files(lake.root, "kernels")[0])
    trace_ids = duckdb.execute("SELECT trace_id FROM read_parquet(?)", [file]).fetchall()
    assert trace_ids == sorted(trace_ids)


@pytest.mark.slow  # the test above has groups of traces, which are read the same way
def test_many_events_are_read_from_their_files_and_give_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ["kernels", "launches", "temporal_breakdown", "critical_path"]
    kinds = []

    def noted(con: duckdb.DuckDBPyConnection, *more: Any, **named: Any) -> list[ModelRun]:
        kinds.extend(
            con.execute("SELECT table_type FROM information_schema.tables WHERE table_name = 'events'").fetchall()
        )
        return run_models(con, *more, **named)

    monkeypatch.setattr("pipelines.runs.materialize.per_trace.run_models", noted)
    materialize(lake, tables)
    few = shown(lake, tables)
    monkeypatch.setattr("pipelines.runs.materialize.per_trace.FEW_EVENTS", 0)
    materialize(lake, tables, force=True)
    assert shown(lake, tables) == few
    assert kinds == [("BASE TABLE",), ("VIEW",)]


@pytest.mark.slow  # a test below has a trace that needs too much memory
def test_what_does_not_fit_is_spilled_into_the_lakes_staging_and_nothing_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []

    def noted(con: duckdb.DuckDBPyConnection, *more: Any, **named: Any) -> list[ModelRun]:
        places.extend(
            con.execute(
                "SELECT current_setting('temp_directory'), path FROM duckdb_databases() WHERE NOT internal"
            ).fetchall()
        )
        return run_models(con, *more, **named)

    monkeypatch.setattr("pipelines.runs.materialize.per_trace.run_models", noted)
    materialize(lake, ["kernels"])
    ((spilled, database),) = places
    assert lake.root / STAGING in Path(spilled).parents
    assert database is None  # the database is in memory
    assert not list((lake.root / STAGING).iterdir())


@pytest.mark.slow
def test_a_trace_that_needs_too_much_memory_is_left_out_with_a_sentence(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, on_model: Callable[[str], None], **__: Any) -> list[ModelRun]:
        on_model("kernels")
        raise duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block")

    monkeypatch.setattr("pipelines.runs.materialize.per_trace.run_models", full)
    materialize(lake, ["kernels"])
    with lake.connect(["traces"]) as con:
        n_traces = con.execute("SELECT count(*) FROM traces").fetchall()[0][0]
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        reasons = con.execute("SELECT reason FROM model_failures").fetchall()
    assert len(reasons) == n_traces
    assert all("needs more memory than the 1907MiB" in reason and "fewer steps" in reason for (reason,) in reasons)


@pytest.mark.slow
def test_chosen_batches_only(lake: Lake, tmp_path: Path) -> None:
    ingest([write_trace(tmp_path / "more.json", 9)], lake)
    first, second = lake.batches()
    assert {d.batch for d in materialize(lake, TABLES, [second])} == {second}
    assert stale(lake, load_catalog(), TABLES, first) == TABLES


def test_an_unknown_table_is_refused_before_anything_is_computed(lake: Lake) -> None:
    with pytest.raises(CatalogError, match="unknown table 'kernles'; known tables are "):
        materialize(lake, ["kernels", "kernles"])
    assert not table_files(lake.root, "kernels")


def test_a_lake_without_traces(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert materialize(lake) == []
    assert (lake.root / ANALYST).exists()
