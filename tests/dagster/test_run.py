"""The whole job in process: files in an inbox → lake → models → path → overlay."""

import shutil
from pathlib import Path

import dagster as dg
import duckdb
import pytest

import pipelines.lake.publish as publishing
from assets.checks import checks
from assets.common import today
from assets.traces import LAKE_TABLES
from dagster_project.definitions import definitions
from dagster_project.demo import asset_names, materialize_all
from pipelines.ingest import ingest
from pipelines.lake import Lake
from tests.dagster.conftest import SHARED, write_trace


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dict]:
    """Asset → metadata of its materialization."""
    events = [e.step_materialization_data.materialization for e in result.get_asset_materialization_events()]
    return {e.asset_key.to_user_string(): {k: v.value for k, v in e.metadata.items()} for e in events}


def state(folder: Path) -> dict[str, int]:
    """Every file of the lake that is data, with its time of change; hidden ones say what is published."""
    files = [p for p in folder.rglob("*") if p.suffix in (".parquet", ".json", ".gz") and p.name[:1] != "."]
    return {str(p): p.stat().st_mtime_ns for p in files}


SOME = ("kernels", "merged_intervals", "critical_path_edges", "critical_path", "overlay")


@pytest.mark.parametrize("only", [SOME, pytest.param(None, marks=pytest.mark.slow, id="every_asset")])
def test_tiny_trace_through_assets_then_again_then_only_the_models(
    run, inbox: Path, tmp_path: Path, only: tuple[str, ...] | None
) -> None:
    write_trace(inbox / "rank0.json")
    result = run(only=only)
    first = materialized(result)
    assert result.success
    assert set(first) == ({*only, *LAKE_TABLES} if only else {*asset_names()})
    assert first["events"]["dagster/row_count"] == 4
    assert first["kernels"]["dagster/row_count"] == 1
    assert first["kernels"]["computed"] is True
    assert {c.name: c.type for c in first["kernels"]["dagster/column_schema"].columns}["ts_ns"] == "BIGINT"
    assert "kernels" in {
        dep.asset_key.to_user_string()
        for deps in first["merged_intervals"]["dagster/column_lineage"].deps_by_column.values()
        for dep in deps
    }
    assert "gemm" in first["kernels"]["preview"]
    assert first["overlay"]["files"] == 1
    assert len(list((tmp_path / "lake" / "overlays").rglob("overlaid_critical_path_rank0.json*"))) == 1
    with duckdb.connect(str(tmp_path / "lake" / "analyst.duckdb"), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM critical_path").fetchall()[0][0] > 0

    before = state(tmp_path / "lake")
    again = materialized(run(only=only))
    assert state(tmp_path / "lake") == before
    assert {n: m.get("dagster/row_count") for n, m in again.items()} == {
        n: m.get("dagster/row_count") for n, m in first.items()
    }
    assert again["kernels"]["computed"] is False
    assert again["overlay"]["written"] == 0

    write_trace(inbox / "rank1.json", shift=5)
    models = materialized(run(job="analyse", only=only))
    assert "events" not in models
    assert models["critical_path"]["dagster/row_count"] > 0
    assert models["overlay"]["files"] == 1


def test_one_trace_or_batch_without_an_overlay_does_not_stop_the_others(run, inbox: Path, tmp_path: Path) -> None:
    """A name that leaves no room for the overlay's, and a batch that another run has not computed the path of yet."""
    write_trace(inbox / "rank0.json")
    long = write_trace(inbox / f"{'r' * 240}.json", shift=5)
    result = run(only=["critical_path", "overlay"])
    assert result.success
    shown = materialized(result)["overlay"]
    assert shown["files"] == 1
    assert long.name in shown["failed"]

    ingest([write_trace(tmp_path / "rank1.json", shift=9)], Lake(tmp_path / "lake"))
    only = dg.define_asset_job("only_overlay", selection=dg.AssetSelection.assets("overlay"))
    everything = dg.Definitions.merge(definitions(str(tmp_path / "lake")), dg.Definitions(jobs=[only]))
    shown = materialized(everything.resolve_job_def("only_overlay").execute_in_process(partition_key=today()))
    assert (shown["overlay"]["files"], shown["overlay"]["batches_without_path"]) == (1, 1)


@pytest.mark.slow
def test_empty_inbox(run, inbox: Path) -> None:
    result = run()
    assert result.success
    assert materialized(result)["events"]["dagster/row_count"] == 0


@pytest.mark.slow
def test_real_traces(run, inbox: Path) -> None:
    sources = sorted(SHARED.glob("*.json.gz"))
    if not sources:
        pytest.skip(f"no traces in {SHARED}")
    for source in sources:
        shutil.copy(source, inbox)
    result = run()
    made = materialized(result)
    assert made["traces"]["dagster/row_count"] == len(sources)
    assert made["overlay"]["files"] == len(sources)
    evaluated = {(e.asset_key.to_user_string(), e.check_name): e for e in result.get_asset_check_evaluations()}
    assert evaluated["critical_path", "unique_trace_id_window_id_seq"].passed
    assert evaluated["rejects", "nothing_rejected"].passed
    assert evaluated["quality", "no_error"].passed


def test_a_rejected_file_warns_and_the_rest_goes_on(run, inbox: Path) -> None:
    write_trace(inbox / "rank0.json")
    (inbox / "notes.txt").write_text("this is no trace")
    result = run(only=["kernels"])
    rejected = next(e for e in result.get_asset_check_evaluations() if e.check_name == "nothing_rejected")
    assert result.success
    assert materialized(result)["traces"]["dagster/row_count"] == 1
    assert not rejected.passed
    assert rejected.severity == dg.AssetCheckSeverity.WARN
    assert "notes.txt" in rejected.metadata["files"].value


def test_failing_checks_are_shown_as_failed(tmp_path: Path) -> None:
    """A table that holds a key twice and a quality table with an error: both checks fail, the run does not."""
    day, batch = today(), f"{today().replace('-', '')}T000000000000-00000000"
    rows = {
        "traces": "SELECT 't' AS trace_id",
        "threads": "FROM (VALUES ('t', 1), ('t', 1)) AS v(trace_id, thread_id)",
        "quality": "SELECT 't' AS trace_id, 'cycle' AS check, 'error' AS severity, 3 AS n, 'x' AS detail",
    }
    for table, query in rows.items():
        folder = tmp_path / table / f"day={day}"
        folder.mkdir(parents=True)
        duckdb.sql(query).write_parquet(str(folder / f"{batch}.parquet"))
    job = dg.define_asset_job("only_checks", selection=dg.AssetSelection.checks(checks))
    everything = dg.Definitions.merge(definitions(str(tmp_path)), dg.Definitions(jobs=[job]))
    result = everything.resolve_job_def("only_checks").execute_in_process()
    found = {(e.asset_key.to_user_string(), e.check_name): e for e in result.get_asset_check_evaluations()}
    assert result.success
    assert not found["threads", "unique_trace_id_thread_id"].passed
    assert not found["quality", "no_error"].passed
    assert found["quality", "no_error"].severity == dg.AssetCheckSeverity.ERROR
    assert found["quality", "no_warning"].passed


@pytest.mark.slow
def test_materialize_all_reports_each_asset_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write_trace(tmp_path / "rank0.json")
    done: list[str] = []
    logged: list[str] = []
    assert materialize_all(tmp_path / "lake", [file], done.append, logged.append)
    assert sorted(done) == asset_names()
    assert any(line.startswith("model kernels") for line in logged)
    assert capfd.readouterr().err == ""


def test_a_run_publishes_once(run, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables of traces and of captures, with pictures of both; a run of tables of traces alone; one with nothing new."""
    times, rewrite = [], publishing._rewrite
    monkeypatch.setattr(publishing, "_rewrite", lambda *args: (times.append(1), rewrite(*args)))
    after = ("step_times", "captures", "capture_ranks", "rank_steps")
    alone = ("captures", "capture_ranks")  # they read no table of traces, so either may come first
    for number, (only, expected) in enumerate(
        (
            (("kernels", "span_utilization", *after), 1),
            (("kernels",), 1),
            (("kernels", *after), 1),
            (("kernels", *alone), 2),
        )
    ):
        times.clear()
        write_trace(inbox / f"rank{number}.json", shift=number)
        assert run(only=only).success
        assert len(times) == expected, only
        with duckdb.connect(str(tmp_path / "lake" / "analyst.duckdb"), read_only=True) as con:
            assert con.execute("SELECT count(DISTINCT trace_id) FROM kernels").fetchall() == [(number + 1,)]
    for expected in (1, 0):  # what the run before left out; nothing
        times.clear()
        assert run(only=("kernels", *after)).success
        assert len(times) == expected
