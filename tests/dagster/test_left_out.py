"""Runs in which a model fails on a trace.

The run fails at its end, after everything else is stored, and is not retried.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.metadata import LEFT_OUT_TAG, today
from assets.results import NOTHING_LEFT_OUT
from dagster_project.definitions import definitions
from dagster_project.runs_in_progress import failed_last
from pipelines.lake import Lake
from pipelines.models.run import run_models
from pipelines.runs.materialize import per_trace
from tests.dagster.tiny import write_trace
from tests.runs.store.conftest import need_extensions

ASKED = ("traces", "events", "findings", "rejects", "kernels", "quality", "captures", "capture_ranks")


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch, inbox: Path) -> dict[str, Any]:
    """Write two traces, and return a dict.

    The model `kernels` fails on one of the traces while `odd["fails"]` is true.
    """
    state: dict[str, Any] = {"fails": True, "n": 0}

    def failing(con: Any, catalog: Any, tables: Any, *, on_model: Any, **named: Any) -> Any:
        def starts(name: str) -> None:
            on_model(name)
            if name == "kernels" and state["fails"]:
                ((n,),) = con.execute("SELECT count(*) FROM traces WHERE path LIKE '%odd%'").fetchall()
                state["n"] += n
                if n:
                    raise ValueError("this trace is odd")

        return run_models(con, catalog, tables, on_model=starts, **named)

    monkeypatch.setattr(per_trace, "run_models", failing)
    write_trace(inbox / "rank0.json")
    write_trace(inbox / "odd.json", shift=5)
    return state


def run(lake: Lake, names: tuple[str, ...], instance: dg.DagsterInstance, job: str = "ingest_and_analyse") -> Any:
    definition = definitions(str(lake.root)).resolve_job_def(job)
    return definition.execute_in_process(
        partition_key=today(),
        instance=instance,
        asset_selection=[dg.AssetKey(name) for name in names],
        raise_on_error=False,
    )


def failures(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    events = result.filter_events(lambda event: event.event_type == dg.DagsterEventType.STEP_FAILURE)
    return {str(event.step_key): str(event.step_failure_data.error) for event in events}


def stored(result: dg.ExecuteInProcessResult) -> set[str]:
    events = result.get_asset_materialization_events()
    return {event.step_materialization_data.materialization.asset_key.to_user_string() for event in events}


@pytest.mark.slow  # 45 s
def test_the_check_fails_the_run_after_everything_else(tmp_path: Path, odd: dict[str, Any]) -> None:
    lake = Lake(tmp_path / "lake")
    with dg.DagsterInstance.ephemeral() as instance:
        result = run(lake, ASKED, instance)
        failed, tags = failures(result), instance.get_run_by_id(result.run_id).tags  # pyright: ignore[reportOptionalMemberAccess]
        assert not result.success and {*failed} == {"checks"} and stored(result) == {*ASKED}
        assert "left out: " in failed["checks"] and "odd.json): the model kernels failed on it" in failed["checks"]
        assert "To compute them again: tracelake materialize " in failed["checks"]
        assert tags[LEFT_OUT_TAG] == "1"
        (verdict,) = (
            check for check in result.get_asset_check_evaluations() if check.check_name == NOTHING_LEFT_OUT.name
        )
        assert not verdict.passed and verdict.severity == dg.AssetCheckSeverity.ERROR
        assert odd["n"] == 2  # once with the other trace, once alone: no step is retried
        assert failed_last(instance, "ingest_and_analyse") == []  # nor is the run
        with lake.connect(["kernels", "captures"]) as con:
            assert con.execute("SELECT count(*), (SELECT count(*) FROM captures) FROM kernels").fetchall() == [(1, 1)]

        assert not run(lake, ASKED, instance, "analyse").success  # up to date, and still without that trace
        odd["fails"] = False
        per_trace.materialize(lake, force=True)
        mended = run(lake, ASKED, instance, "analyse")
        assert mended.success, failures(mended)


def test_a_killed_run_that_was_executed_again_is_repeated() -> None:
    """A killed run is repeated although its tags state that it only left out a trace.

    Dagster copied these tags from the run that it executed again. The new run was killed before the check ran.
    """

    @dg.job(name="ingest_and_analyse")
    def namesake() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        killed = instance.create_run_for_job(namesake, tags={LEFT_OUT_TAG: "1", "dagster/partition": today()})
        instance.report_run_failed(killed)
        assert [record.dagster_run.run_id for record in failed_last(instance, namesake.name)] == [killed.run_id]


@pytest.mark.slow  # 10 s
def test_without_the_check_the_step_that_computes_fails(tmp_path: Path, odd: dict[str, Any]) -> None:
    asked = tuple(name for name in ASKED if name != "quality")
    lake = Lake(tmp_path / "lake")
    with dg.DagsterInstance.ephemeral() as instance:
        result = run(lake, asked, instance)
        assert {*failures(result)} == {"models"} and "kernels" in stored(result)
        assert "left out: kernels lacks trace" in failures(result)["models"] and odd["n"] == 2
        assert [record.dagster_run.run_id for record in failed_last(instance, "ingest_and_analyse")] == [result.run_id]
        result = run(lake, ("captures", "capture_ranks"), instance)
        assert result.success  # all tables that they read are complete


@pytest.mark.slow  # only the computing step differs from a folder lake
@pytest.mark.ducklake("sqlite")
def test_of_a_ducklake_too(tmp_path: Path, odd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    need_extensions("sqlite")
    monkeypatch.setenv("TRACELAKE_DAGSTER_FILES", str(tmp_path / "files"))
    address = f"ducklake:sqlite:{tmp_path}/c.sqlite?data={tmp_path}/data"
    job = definitions(address).resolve_job_def("ingest_and_analyse")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(partition_key=today(), instance=instance, raise_on_error=False)
        assert {*failures(result)} == {"checks"} and {"kernels", "captures", "fleet_today"} <= stored(result)
        assert f"--force --lake '{address}'" in failures(result)["checks"]
        assert failed_last(instance, "ingest_and_analyse") == []
        analyse = definitions(address).resolve_job_def("analyse")
        result = analyse.execute_in_process(partition_key=today(), instance=instance, raise_on_error=False)
        assert {*failures(result)} == {"checks"} and "captures" in stored(result)


@pytest.mark.slow  # 12 s
def test_what_else_failed_is_repeated(tmp_path: Path, odd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assets.today.read_fleet", lambda con: 1 / 0)
    with dg.DagsterInstance.ephemeral() as instance:
        result = run(Lake(tmp_path / "lake"), (*ASKED, "fleet_today"), instance)
        assert {*failures(result)} == {"checks", "fleet_today"}
        assert [record.dagster_run.run_id for record in failed_last(instance, "ingest_and_analyse")] == [result.run_id]


@pytest.mark.slow  # 6 s
def test_of_other_days_nothing_is_said(tmp_path: Path, odd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from assets.metadata import Span
    from assets.results import left_out

    lake = Lake(tmp_path / "lake")
    with dg.DagsterInstance.ephemeral() as instance:
        run(lake, ASKED[:5], instance)
    everything, never = Span(frozenset(), ""), "99991231T000000"
    assert (
        len(left_out(str(lake.root), everything))
        == len(left_out(str(lake.root), Span(frozenset({today()}), never)))
        == 1
    )
    assert left_out(str(lake.root), Span(frozenset({"2020-01-01"}), never)) == []
    assert left_out(str(lake.root), everything, ["launches"]) == []
