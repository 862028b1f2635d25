"""Runs of the sensor and the schedule. By default they compute only the tables that pages, alerts and `why` read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets import results
from assets.metadata import Span, today
from assets.results import NOTE, PURPOSE, observe_left, run_tables
from dagster_project import sensors
from dagster_project.definitions import definitions, defs
from dagster_project.runs_in_progress import PURPOSE_TAG
from dagster_project.sensors import daily_schedule, trace_file_sensor
from pipelines.faces.fleet_tables import FLEET_TABLES
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import trace_tables
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.store import open_store
from tests.dagster.test_sensors import namesake
from tests.dagster.tiny import age, write_trace


@pytest.fixture
def lake(tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("TRACELAKE_LAKE", str(tmp_path / "lake"))
    monkeypatch.delenv(PURPOSE, raising=False)
    age(write_trace(inbox / "rank0.json"))
    return Lake(tmp_path / "lake")


def request_of_sensor(lake: Lake) -> dg.RunRequest:
    defs = definitions(str(lake.root))
    result = trace_file_sensor(str(lake.root))(dg.build_sensor_context(definitions=defs))
    assert isinstance(result, dg.SensorResult) and result.run_requests
    return result.run_requests[0]


SOME = frozenset({"kernels", "captures", "capture_ranks"})


@pytest.mark.slow  # 13 s; the requested tables are tested below, and a run of all tables in test_run.py
def test_a_run_computes_what_pages_alerts_and_why_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that the sensor requests computes only the tables that pages, alerts and `why` read.

    It reports how many batches of the other tables are not computed. The full list of the tables is tested below.
    """
    monkeypatch.setattr(results, "daily_tables", lambda: SOME)
    request = request_of_sensor(lake)
    job = definitions(str(lake.root)).resolve_job_def("ingest_and_analyse")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            run_config=request.run_config,
            partition_key=today(),
            instance=instance,
            asset_selection=request.asset_selection,
        )
    assert result.success
    reported = {
        event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key
    }
    assert {"traces", "fleet_today", "kernels", "capture_ranks"} <= reported
    assert reported.isdisjoint({"call_stacks", "memory_timeline", "overlay"})
    observed = {
        event.asset_key.to_user_string(): event.asset_observation_data.asset_observation.metadata["not_computed"].value
        for event in result.get_asset_observation_events() if event.asset_key
    }  # fmt: skip
    assert observed.keys() == {*load_catalog().materialized, *load_catalog().of_captures} - SOME
    assert observed["call_stacks"] == observed["collectives"] == "1 of 1 batches"
    with open_store(lake.root).analyst() as con:
        assert con.execute("SELECT count(*) FROM kernels").fetchone() != (0,)
        assert con.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    assert all(map(lake.batches, ("kernels", "capture_ranks"))) and not lake.batches("call_stacks")


def test_each_request_of_a_run_asks_for_the_same(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request_of_sensor(lake).asset_selection
    assert asked and {*map(dg.AssetKey, ("traces", "causes", "fixes", "capture_summary", "fleet_today"))} <= {*asked}
    assert dg.AssetKey("call_stacks") not in asked
    at = datetime(2026, 1, 3, 0, 30, tzinfo=UTC)
    monkeypatch.setattr(sensors, "DAYS", dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1))
    later = sensors.time.time() + 60
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        failed = instance.create_run_for_job(namesake, tags={"dagster/partition": "2026-01-02", PURPOSE_TAG: "fleet"})
        instance.report_run_failed(failed)
        monkeypatch.setattr(sensors.time, "time", lambda: later)
        requests = daily_schedule(str(lake.root))(
            dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
        )
    assert isinstance(requests, list) and [request.asset_selection for request in requests] == [asked, asked]
    assert {request.tags[PURPOSE_TAG] for request in requests} == {
        "fleet"
    }  # otherwise a failed day is requested again and again
    assert dg.AssetKey("quality") in asked  # without its check, a model that fails on a trace fails the computing step


@pytest.mark.parametrize(
    ("selected", "is_more"),
    [(None, True), ({"traces", "call_stacks"}, True), ({"traces", "rejects", "fleet_today"}, False)],
    ids=["all", "more", "less"],
)
def test_a_failed_run_by_hand_of_more_is_repeated_as_the_whole_job(
    selected: set[str] | None, is_more: bool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed run by hand of more than the fleet's tables is repeated as the whole job.

    A successful run of only the fleet's tables would count as its success, although other tables are missing.
    """
    keys = None if selected is None else frozenset(map(dg.AssetKey, selected))
    run = dg.DagsterRun("ingest_and_analyse", tags={"dagster/partition": today()}, asset_selection=keys)
    record = SimpleNamespace(dagster_run=run, update_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(sensors, "failed_last", lambda *_: [record])
    monkeypatch.setattr(sensors, "DAYS", dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1))
    fleet = sensors._assets(str(lake.root))
    with dg.DagsterInstance.ephemeral() as instance:
        repeat = sensors._repeated(instance, sensors.time.time(), fleet, except_day="")
        assert repeat and repeat.asset_selection == (None if is_more else fleet)
        assert repeat.tags.get(PURPOSE_TAG) == (None if is_more else "fleet")
        whole = sensors._repeated(instance, sensors.time.time(), None, except_day="")
        assert whole and whole.asset_selection is None and PURPOSE_TAG not in whole.tags


def test_a_run_computes_all_tables_if_asked_for_all(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PURPOSE, "all")
    request = request_of_sensor(lake)
    assert request.asset_selection is None and PURPOSE_TAG not in request.tags


def test_a_run_of_a_ducklake_is_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a DuckLake computes all tables. A DuckLake computes them when a trace is ingested, not on first use."""
    monkeypatch.delenv(PURPOSE, raising=False)
    assert run_tables("ducklake:sqlite:/data/c.sqlite?data=/data/files") is None
    assert run_tables("/data/lake")


def test_what_captures_read_is_computed_in_the_same_step() -> None:
    """A run for the fleet computes the tables of traces that captures read in the step of traces.

    Otherwise the step of captures would compute these tables, and the path twice.
    """
    catalog = load_catalog()
    tables = run_tables("/data/lake") or frozenset()
    assert {*trace_tables(catalog, tables & {*catalog.of_captures})} <= tables
    assert "critical_path_edges" in tables and "critical_path" not in tables
    of_fleet = trace_tables(catalog, {*FLEET_TABLES} & {*catalog.of_captures})
    # rank_steps needs no more tables of traces, so it costs little
    assert {*trace_tables(catalog, {"rank_steps"})} <= {*of_fleet}


def test_an_asset_that_runs_leave_out_says_how_to_get_it() -> None:
    graph = defs.resolve_asset_graph()
    notes = {key.to_user_string(): graph.get(key).metadata.get(NOTE) for key in graph.get_all_asset_keys()}
    left_out = {name for name, note in notes.items() if note is not None}
    assert {"call_stacks", "collectives", "overlay", "span_utilization"} <= left_out
    assert left_out.isdisjoint({*(run_tables() or ()), "traces", "fleet_today", "jobs", "rank_steps"})
    assert "A command that reads this table computes it first" in str(notes["call_stacks"])


def test_tables_of_which_traces_are_left_for_their_first_use_say_so(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[dg.AssetObservation] = []
    span = Span(frozenset({today()}), "")

    def observed(in_run: set[str], names: tuple[str, ...] = ("kernels", "streams")) -> dict[str, Any]:
        layer = SimpleNamespace(executable_asset_keys={*map(dg.AssetKey, in_run)})
        context: Any = SimpleNamespace(job_def=SimpleNamespace(asset_layer=layer), log_event=events.append)
        events.clear()
        observe_left(context, lake, names, span, span.batches(lake))
        return {event.asset_key.to_user_string(): dict(event.metadata) for event in events}

    assert observed({"traces"}) == {}  # nothing is ingested yet
    ingest([write_trace(tmp_path / "rank0.json")], lake)
    none = {"not_computed": dg.MetadataValue.text("1 of 1 batches")}
    assert observed({"traces"}) == {"kernels": none, "streams": none}
    materialize(lake, ["kernels"])
    assert observed({"traces", "streams"})["kernels"]["not_computed"].value == "0 of 1 batches"
    ingest([write_trace(tmp_path / "rank1.json", 5)], lake)
    kernels = observed({"traces", "streams"})["kernels"]
    assert (kernels["not_computed"].value, kernels["dagster/row_count"].value) == ("1 of 2 batches", 1)
    assert [event.partition for event in events] == [today()]
    assert observed({"kernels"}) == {}  # one table, materialized by hand
    digests = lake.batches()[1:]
    monkeypatch.setattr(Lake, "is_digest", lambda _, batch: batch in digests)
    assert {name: row["not_computed"].value for name, row in observed({"traces"}).items()} == {
        "kernels": "0 of 1 batches",
        "streams": "1 of 1 batches",
    }
    digests = lake.batches()
    assert observed({"traces"}) == {}


def test_an_unknown_purpose_is_refused_with_the_remedy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PURPOSE, "fleets")
    message = "TRACELAKE_FOR is 'fleets'; set it to fleet, the default, or to all"
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=message):
        trace_file_sensor(str(lake.root))
