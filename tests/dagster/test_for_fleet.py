"""Runs of the sensor and the schedule with TRACELAKE_FOR=fleet: what pages, alerts and why read, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from assets.metadata import today
from dagster_project import sensors
from dagster_project.definitions import definitions
from dagster_project.runs_in_progress import PURPOSE_TAG
from dagster_project.sensors import daily_schedule, trace_file_sensor
from pipelines.lake import Lake
from pipelines.runs.store import open_store
from tests.dagster.test_sensors import namesake
from tests.dagster.tiny import age, write_trace


@pytest.fixture
def lake(tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("TRACELAKE_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("TRACELAKE_FOR", "fleet")
    age(write_trace(inbox / "rank0.json"))
    return Lake(tmp_path / "lake")


def request_of_sensor(lake: Lake) -> dg.RunRequest:
    defs = definitions(str(lake.root))
    result = trace_file_sensor(str(lake.root))(dg.build_sensor_context(definitions=defs))
    assert isinstance(result, dg.SensorResult) and result.run_requests
    return result.run_requests[0]


SOME = ("kernels", "captures", "capture_ranks")


@pytest.mark.slow  # 13 s; what a run is asked for is below, and a run of all in test_run.py
def test_a_run_computes_what_pages_alerts_and_why_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of all that pages, alerts and why read are in the request, below."""
    left_out = {dg.AssetKey("quality")}  # it needs half of the models
    monkeypatch.setattr(sensors, "FLEET_TABLES", SOME)
    request = request_of_sensor(lake)
    job = definitions(str(lake.root)).resolve_job_def("ingest_and_analyse")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            run_config=request.run_config,
            partition_key=today(),
            instance=instance,
            asset_selection=[key for key in request.asset_selection or () if key not in left_out],
        )
    assert result.success
    reported = {
        event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key
    }
    assert {"traces", "fleet_today", "kernels", "capture_ranks"} <= reported
    assert reported.isdisjoint({"call_stacks", "memory_timeline", "overlay"})
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
        failed = instance.create_run_for_job(namesake, tags={"dagster/partition": "2026-01-02"})
        instance.report_run_failed(failed)
        monkeypatch.setattr(sensors.time, "time", lambda: later)
        requests = daily_schedule(str(lake.root))(
            dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
        )
    assert isinstance(requests, list) and [request.asset_selection for request in requests] == [asked, asked]
    assert {request.tags[PURPOSE_TAG] for request in requests} == {
        "fleet"
    }  # or a failed day is asked for again and again
    assert dg.AssetKey("quality") in asked  # with its check, or a model that fails on a trace fails the whole run


def test_without_the_variable_a_run_is_of_everything(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACELAKE_FOR")
    assert request_of_sensor(lake).asset_selection is None


def test_an_unknown_purpose_is_refused_with_the_remedy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_FOR", "fleets")
    with pytest.raises(
        dg.DagsterInvalidDefinitionError, match="TRACELAKE_FOR is 'fleets'; set it to fleet, or unset it"
    ):
        trace_file_sensor(str(lake.root))
