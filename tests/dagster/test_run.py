"""The whole job in process: files in an inbox → lake → models → path → overlay."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import duckdb
import networkx as nx
import pytest

import pipelines.lake.publish.analyst_file as publishing
from assets import critical_path
from assets.checks import Keys, checks, findings_checks, unique_keys
from assets.critical_path import _newest, _remove_others
from assets.metadata import Span, today
from assets.traces import LAKE_TABLES, REJECTED_TAG
from dagster_project.definitions import definitions
from dagster_project.demo import asset_names, materialize_all
from pipelines.lake import Batch, Lake
from pipelines.lake.names import OVERLAYS
from pipelines.lake.publish.contents import no_row
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.store import open_store
from tests.dagster.conftest import SHARED
from tests.dagster.tiny import write_trace


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dict]:
    """Return the metadata of each asset's materialization."""
    events = [e.step_materialization_data.materialization for e in result.get_asset_materialization_events()]
    return {e.asset_key.to_user_string(): {k: v.value for k, v in e.metadata.items()} for e in events}


def state(folder: Path) -> dict[str, int]:
    """Return each data file of the lake with its modification time.

    Hidden files are skipped: they record what is published.
    """
    files = [p for p in folder.rglob("*") if p.suffix in (".parquet", ".json", ".gz") and p.name[:1] != "."]
    return {str(p): p.stat().st_mtime_ns for p in files}


SOME = ("kernels", "merged_intervals", "critical_path_edges", "critical_path", "capture_ranks", "captures", "overlay")


def test_the_asset_of_the_path_imports_networkx() -> None:
    """The asset of the path imports networkx.

    Without the import networkx would not compute the path, because its class would be called directly. See
    `pipelines/critical_path/longest/window_paths.py`.
    """
    assert critical_path.networkx is nx


@pytest.mark.parametrize("only", [SOME, pytest.param(None, marks=pytest.mark.slow, id="every_asset")])
def test_tiny_trace_through_assets_then_again_then_only_the_models(
    run, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: tuple[str, ...] | None
) -> None:
    """A run warns about a rejected file in the inbox, and ingests the trace next to it."""
    tags: dict[str, str] = {}
    monkeypatch.setattr(dg.DagsterInstance, "add_run_tags", lambda self, run_id, new: tags.update(new))
    write_trace(inbox / "rank0.json")
    (inbox / "notes.txt").write_text("this is no trace")
    with patch.object(nx, "dag_longest_path", wraps=nx.dag_longest_path) as longest:
        result = run(only=only)
    assert [call.kwargs for call in longest.call_args_list] == [{"backend": "tracelake"}], (
        "the one window of its profile"
    )
    first = materialized(result)
    rejected = next(e for e in result.get_asset_check_evaluations() if e.check_name == "nothing_rejected")
    assert result.success
    assert first["traces"]["dagster/row_count"] == 1
    assert not rejected.passed
    assert rejected.severity == dg.AssetCheckSeverity.WARN
    assert tags[REJECTED_TAG] == "1"
    assert "notes.txt" in rejected.metadata["files"].value
    assert rejected.metadata["file 1"].value == str(inbox / "notes.txt") and "notes.txt" in (rejected.description or "")
    assert set(first) == ({*only, *LAKE_TABLES} if only else {*asset_names()})
    assert first["events"]["dagster/row_count"] == 4
    assert first["kernels"]["dagster/row_count"] == 1
    assert first["kernels"]["computed"] is True
    assert {c.name: c.type for c in first["kernels"]["dagster/column_schema"].columns}["start_ns"] == "BIGINT"
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
    models = materialized(run(job="analyse", only=only and ("critical_path", "overlay")))
    assert "events" not in models
    assert models["critical_path"]["dagster/row_count"] > 0
    assert models["overlay"]["files"] == 1


@pytest.mark.slow  # a rejected file that stops nothing is tested above
def test_one_trace_or_batch_without_an_overlay_does_not_stop_the_others(run, inbox: Path, tmp_path: Path) -> None:
    """A trace or batch without an overlay does not stop the other overlays.

    One trace's name is too long for its overlay's name. One batch is from another run, which has not computed its path
    yet.
    """
    write_trace(inbox / "rank0.json")
    long = write_trace(inbox / f"{'r' * 240}.json", shift=5)
    result = run(only=["critical_path", "overlay"], overlays="all")
    assert result.success
    shown = materialized(result)["overlay"]
    assert shown["files"] == 1
    assert long.name in shown["failed"]

    ingest([write_trace(tmp_path / "rank1.json", shift=9)], Lake(tmp_path / "lake"))
    only = dg.define_asset_job("only_overlay", selection=dg.AssetSelection.assets("overlay"))
    everything = dg.Definitions.merge(definitions(str(tmp_path / "lake")), dg.Definitions(jobs=[only]))
    every = {"ops": {"overlay": {"config": {"of": "all"}}}}
    job = everything.resolve_job_def("only_overlay")
    shown = materialized(job.execute_in_process(partition_key=today(), run_config=every))
    assert (shown["overlay"]["files"], shown["overlay"]["batches_without_path"]) == (1, 1)


@pytest.mark.slow  # tests/dagster/test_today.py tests the page
def test_the_page_of_today_shows_what_the_run_itself_took_in(run, inbox: Path) -> None:
    (inbox / "first").mkdir()
    write_trace(inbox / "first" / "rank0.json")
    shown = materialized(run(only=["fleet_today", "captures", "capture_ranks", "capture_metrics"]))["fleet_today"]
    assert (shown["traces"], shown["captures"], shown["jobs"]) == (1, 1, 1)


def test_overlays_of_a_capture_that_came_during_the_run_stay(tmp_path: Path) -> None:
    """A run does not remove overlays of captures that arrived during the run.

    A run that ingested nothing ends after a later run, which wrote the overlay of a newer capture.
    """
    lake, names = Lake(tmp_path / "lake"), []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        report = ingest([write_trace(tmp_path / str(number) / "rank0.json", number * 10_000_000)], lake)
        names += [row.trace_id for row in report.rows]
        folder = lake.root / OVERLAYS / f"day={lake.batches()[-1].day}" / str(names[-1])
        folder.mkdir(parents=True)
        if number == 1:
            chosen = _newest(lake)
    assert chosen == {names[1]}
    assert _remove_others(lake, chosen) == 1
    assert {path.name for path in (lake.root / OVERLAYS).glob("day=*/*")} == set(names[1:])


@pytest.mark.slow
def test_empty_inbox(run, inbox: Path) -> None:
    result = run(only=SOME)
    assert result.success
    assert materialized(result)["events"]["dagster/row_count"] == 0


@pytest.mark.slow
def test_real_traces(run, inbox: Path) -> None:
    sources = sorted(SHARED.glob("*.json.gz"))
    if not sources:
        pytest.skip(f"no traces in {SHARED}")
    for source in sources:
        shutil.copy(source, inbox)
    result = run(only=("critical_path_windows", "critical_path", "quality", "overlay"), overlays="all")
    made = materialized(result)
    assert made["traces"]["dagster/row_count"] == len(sources)
    assert made["overlay"]["files"] == len(sources)
    evaluated = {(e.asset_key.to_user_string(), e.check_name): e for e in result.get_asset_check_evaluations()}
    assert evaluated["critical_path_windows", "unique_keys"].passed  # the first table of the group
    assert evaluated["rejects", "nothing_rejected"].passed
    assert evaluated["quality", "no_error"].passed


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Callable[[], dict[tuple[str, str], dg.AssetCheckEvaluation]]]:
    """Yield `check()`, which evaluates the checks of a few tables on the lake `tmp_path`.

    The Dagster instance keeps the results of earlier calls.
    """
    of = ["quality", *(keys_of(table)[0] for table in ("traces", "threads", "launches"))]
    asked = dg.AssetSelection.checks(checks) & dg.AssetSelection.checks_for_assets(*of)
    job = dg.define_asset_job("only_checks", selection=asked)
    everything = dg.Definitions.merge(definitions(str(tmp_path)), dg.Definitions(jobs=[job]))
    with dg.DagsterInstance.ephemeral() as instance:

        def evaluate() -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
            result = everything.resolve_job_def("only_checks").execute_in_process(instance=instance)
            assert result.success
            evaluations = result.get_asset_check_evaluations()
            return {(e.asset_key.to_user_string(), e.check_name): e for e in evaluations}

        yield evaluate


def put(lake: Path, rows: dict[str, str], hour: int = 0) -> None:
    """Write tables of a batch."""
    batch = Batch(f"{today().replace('-', '')}T{hour:02}0000000000-00000000")
    for table, query in rows.items():
        staged = Lake(lake).staging(batch) / table
        duckdb.sql(query).write_parquet(str(staged))
        Lake(lake).put(table, batch, staged)


def keys_of(table: str) -> tuple[str, str]:
    """Return the key of the check of a table's unique keys. The check belongs to the first table of its group."""
    (keys,) = (keys for keys in unique_keys() if table in [name for name, _ in keys.of])
    return keys.of[0][0], "unique_keys"


def test_failing_checks_are_shown_as_failed(tmp_path: Path, check) -> None:
    """A table with a duplicate key and a quality table with an error both fail their checks, but not the run."""
    twice = "FROM (VALUES ('t', 1), ('t', 1)) AS v(trace_id, thread_id)"
    error = "SELECT 't' AS trace_id, 'cycle' AS check_name, 'error' AS severity, 3 AS n, 'x' AS detail"
    trace = f"SELECT * REPLACE ('t' AS trace_id) FROM ({no_row(load_catalog(), 'traces')})"
    put(tmp_path, {"traces": trace, "threads": twice, "quality": error})
    for _ in range(2):  # failed checks are evaluated again
        evaluations = check()
        keys = evaluations[keys_of("threads")]
        assert not keys.passed
        shown = str(keys.metadata["found"].value)
        assert "| threads |" in shown and "| t, 1 | 2 |" in shown
        assert not evaluations["quality", "no_error"].passed
        assert evaluations["quality", "no_error"].severity == dg.AssetCheckSeverity.ERROR
        assert evaluations["quality", "no_warning"].passed


def test_a_finding_about_a_capture_is_gone_with_the_rank_that_came_late(tmp_path: Path) -> None:
    """A finding about a missing rank disappears once the rank has arrived.

    The capture is recomputed into another batch, without rows in `capture_quality`.
    """
    columns = "'c' AS capture_id, 'missing_ranks' AS check_name, 'warning' AS severity, 1 AS n, 'x' AS detail"
    (evaluate,) = (e for spec, e in findings_checks() if spec.asset_key == dg.AssetKey("capture_quality"))
    for hour, passed in ((0, False), (1, True)):
        batch = f"'{today().replace('-', '')}T{hour:02}0000000000-00000000' AS batch_id"
        findings = f"SELECT {columns}, {batch} WHERE {hour == 0}"
        put(tmp_path, {"capture_quality": findings, "captures": f"SELECT 'c' AS capture_id, {batch}"}, hour)
        store = open_store(tmp_path)
        with store.rows() as rows:
            assert evaluate(rows, Span(frozenset({today()}), ""), store).passed == passed


def test_a_finding_about_a_cut_trace_is_gone_with_the_whole_one(tmp_path: Path) -> None:
    lake, file = Lake(tmp_path / "lake"), write_trace(tmp_path / "rank0.json")
    whole, store = file.read_text(), open_store(lake)
    severities = {spec.name: e for spec, e in findings_checks() if spec.asset_key == dg.AssetKey("quality")}
    for text, passed in ((whole[: whole.index("cudaDeviceSynchronize") + 5], False), (whole, True)):
        file.write_text(text)
        ingest([file], lake)
        materialize(lake, ["quality"], and_publish=False)
        with store.rows() as rows:
            assert severities["no_error"](rows, Span(frozenset({today()}), ""), store).passed == passed


def test_a_check_of_another_lake_reads_all_rows(tmp_path: Path) -> None:
    """A check reads all rows if its last result is about another lake.

    This happens after TRACELAKE_LAKE was changed. The position in a DuckLake is a batch id, in a folder a time.
    """
    keys, span = Keys("steps", [("threads", ["trace_id", "thread_id"])]), Span(frozenset(), "")

    def evaluate(name: str, last: dict[str, Any] | None) -> dg.AssetCheckResult:
        before = dg.AssetCheckEvaluation(dg.AssetKey("threads"), "unique_keys", True, last) if last else None
        with open_store(tmp_path / name).rows() as rows:
            return keys.evaluate(rows, span, before)

    for name, n in (("whole", 1), ("double", 2)):
        threads = f"SELECT 't' AS trace_id, 1 AS thread_id FROM range({n})"
        put(tmp_path / name, {"traces": "SELECT 't' AS trace_id", "threads": threads})
    time.sleep(0.05)
    whole = evaluate("whole", None)
    of_ducklake = {"lake": "ducklake:x", "read until": "20261130T131523421506-da733ee9", "days": ""}
    assert whole.passed and evaluate("whole", dict(whole.metadata)).metadata["files"].value == 0
    for last in (dict(whole.metadata), {name: dg.MetadataValue.text(value) for name, value in of_ducklake.items()}):
        assert not evaluate("double", last).passed


@pytest.mark.slow  # 4 s; failing checks are tested above and below
def test_a_check_reads_what_is_new_since_it_passed(tmp_path: Path, check) -> None:
    once = "FROM (VALUES ('t', 1), ('t', 2)) AS v(trace_id, event_id)"
    put(tmp_path, {"traces": "SELECT 't' AS trace_id", "launches": once})
    assert check()[keys_of("launches")].metadata["files"].value == 1
    assert check()[keys_of("launches")].metadata["files"].value == 0
    put(tmp_path, {"traces": "SELECT 'u' AS trace_id", "launches": once}, hour=1)
    evaluations = check()
    assert evaluations[keys_of("launches")].metadata["files"].value == 1
    assert evaluations[keys_of("traces")].passed
    put(tmp_path, {"traces": "SELECT 't' AS trace_id"}, hour=2)
    assert not check()[keys_of("traces")].passed  # the trace is in two batches


def test_a_check_reads_what_was_written_before_it_passed_and_committed_after(tmp_path: Path) -> None:
    """A check reads files that were written before its last pass but committed after it.

    A long run renames its tables into place before the commit marker exists. A short run passes in the meantime.
    """
    keys, lake, staged = (
        Keys("steps", [("threads", ["trace_id", "thread_id"])]),
        Lake(tmp_path / "lake"),
        tmp_path / "in",
    )
    last = None

    def evaluate() -> tuple[bool, int]:
        nonlocal last
        time.sleep(0.05)
        with open_store(lake).rows() as rows:
            result = keys.evaluate(rows, Span(frozenset(), ""), last)
        last = dg.AssetCheckEvaluation(dg.AssetKey("threads"), "unique_keys", result.passed, result.metadata)
        return result.passed, int(str(last.metadata["files"].value))

    def rename(table: str, hour: int) -> None:
        (path,) = (staged / table).rglob(f"*T{hour:02}*.parquet")
        lake.put(table, Batch(path.stem), path)

    for hour in (0, 1):
        twice = "FROM (VALUES ('t', 1), ('t', 1)) AS v(trace_id, thread_id)"
        put(staged, {"traces": "SELECT 't' AS trace_id", "threads": twice}, hour)
    rename("traces", 0)
    assert evaluate() == (True, 0)
    rename("threads", 1)
    assert evaluate() == (True, 0)  # the batch is not committed
    rename("traces", 1)
    assert evaluate() == (False, 1)
    lake.take_away(max(lake.batches()), ["threads"])
    assert evaluate() == (True, 0)
    rename("threads", 0)
    assert evaluate() == (False, 1)


@pytest.mark.slow
def test_materialize_all_reports_each_asset_once_and_keeps_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`materialize_all` reports each asset once, and keeps the run in the lake's folder `.dagster`.

    `tracelake ui` reads the history from that folder.
    """
    # `materialize_all` sets another folder; monkeypatch restores the variable
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    file = write_trace(tmp_path / "rank0.json")
    done: list[str] = []
    assert materialize_all(tmp_path / "lake", [file], done.append)
    assert sorted(done) == asset_names()
    assert capfd.readouterr().err == ""
    with dg.DagsterInstance.from_config(str(tmp_path / "lake" / ".dagster")) as instance:
        (run,) = instance.get_runs()
        assert run.is_success and instance.get_latest_materialization_event(dg.AssetKey("critical_path"))


AFTER = ("step_times", "captures", "capture_ranks", "rank_steps")
ALONE = ("captures", "capture_ranks")  # neither reads a table of traces, so either may come first


@pytest.mark.slow  # tests/runs/materialize/test_once.py tests it without Dagster
def test_a_run_publishes_once(run, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run publishes once, or twice if its tables of captures read no table of traces.

    The runs compute tables of traces and of captures, with charts; tables of traces alone; and no new files.
    """
    times, rewrite = [], publishing._rewrite
    monkeypatch.setattr(publishing, "_rewrite", lambda *args: (times.append(1), rewrite(*args)))
    runs = (("kernels", "span_utilization", *AFTER), 1), (("kernels",), 1), (("kernels", *ALONE), 2)
    for number, (only, expected) in enumerate(runs):
        times.clear()
        write_trace(inbox / f"rank{number}.json", shift=number)
        assert run(only=only).success
        assert len(times) == expected, only
        with duckdb.connect(str(tmp_path / "lake" / "analyst.duckdb"), read_only=True) as con:
            assert con.execute("SELECT count(DISTINCT trace_id) FROM kernels").fetchall() == [(number + 1,)]
    for expected in (1, 0):  # the tables that the previous run omitted; then nothing
        times.clear()
        assert run(only=("kernels", *AFTER)).success
        assert len(times) == expected
