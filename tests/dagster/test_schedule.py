"""The job that runs schedules on the simulated device, so without a GPU and without torch."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from assets.schedule import POOL, ScheduleConfig, _compared, _run, _turns
from dagster_project.definitions import definitions
from pipelines.lake import Lake
from pipelines.lake.names import ANALYST, RUN_MARK
from pipelines.schedule.plan.plan_file import FOLDER
from tests.dagster.tiny import write_trace


@pytest.mark.slow  # tests/readers/test_schedule_runs.py tests the tables of runs
def test_schedules_run_and_their_timings_come_back_as_tables(tmp_path: Path) -> None:
    job = definitions(str(tmp_path)).resolve_job_def("schedule_benchmark")
    chosen = {"plans": ["fused_sparse_dist"], "engines": ["serial", "sw"], "device": "simulated", "iterations": 20}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config={"ops": {"schedules": {"config": chosen}}}, instance=instance)
        assert result.success
        materialized = {
            e.asset_key.to_user_string(): e for e in result.get_asset_materialization_events() if e.asset_key
        }
        checks = {c.check_name: c.passed for c in result.get_asset_check_evaluations()}
    metadata = materialized["schedule_runs"].materialization.metadata
    assert {"compared", "dagster/row_count"} <= metadata.keys()
    assert sum(name.startswith("timeline ") for name in metadata) == 2
    assert metadata["dagster/row_count"].value == 2
    assert {"legal_plan", "no_lost_iteration", "efficiency_not_worse", "unique_keys"} <= checks.keys()
    assert all(checks.values())
    assert len(Lake(tmp_path).known(RUN_MARK)) == 2
    with duckdb.connect(str(tmp_path / ANALYST), read_only=True) as con:
        rows = con.execute("SELECT engine, device, efficiency > 0 FROM schedule_periods ORDER BY 1").fetchall()
        verdicts = con.execute("SELECT engine, rounds, verdict FROM schedule_speedups").fetchall()
    assert rows == [("serial", "simulated", True), ("sw", "simulated", True)]
    ((engine, rounds, verdict),) = verdicts
    assert (engine, rounds) == ("sw", 5) and "times as fast as serial" in verdict
    assert verdict in metadata["compared"].value


@pytest.mark.slow  # 5 s: a process and an ingestion
def test_profiler_traces_of_runs_are_ingested_and_are_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiler traces of schedule runs are ingested, and do not count as runs.

    The option `trace` writes a profiler trace into the run's folder, but needs torch. A stand-in writes the file.
    """

    def with_trace(
        plan: str, engines: list[str], config: ScheduleConfig, folder: Path
    ) -> subprocess.CompletedProcess[str]:
        printed = _run(plan, engines, config, folder)
        (run,) = (path for path in folder.iterdir() if path.is_dir())
        write_trace(run / "trace.json")
        printed.stderr = "the host will be the bottleneck\n"
        return printed

    monkeypatch.setattr("assets.schedule._run", with_trace)
    job = definitions(str(tmp_path)).resolve_job_def("schedule_benchmark")
    chosen = {"plans": ["mlp"], "engines": ["sw"], "device": "simulated", "iterations": 10}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config={"ops": {"schedules": {"config": chosen}}}, instance=instance)
        materialized = result.asset_materializations_for_node("schedules")
    assert {entry.metadata["runs"].value for entry in materialized} == {1}
    warnings = [entry.metadata["warnings"].value for entry in materialized if "warnings" in entry.metadata]
    assert warnings == ["the host will be the bottleneck"]
    assert len(Lake(tmp_path).known(RUN_MARK)) == len(Lake(tmp_path).known_traces()) == 1


@pytest.mark.slow  # 4 s: a process
def test_what_was_measured_before_a_plan_failed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_only(
        plan: str, engines: list[str], config: ScheduleConfig, folder: Path
    ) -> subprocess.CompletedProcess[str]:
        if plan != "mlp":
            raise dg.Failure(f"plan {plan} was stopped")
        return _run(plan, engines, config, folder)

    monkeypatch.setattr("assets.schedule._run", first_only)
    job = definitions(str(tmp_path)).resolve_job_def("schedule_benchmark")
    chosen = {"plans": ["mlp", "fused_sparse_dist"], "engines": ["sw"], "device": "simulated", "iterations": 10}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            run_config={"ops": {"schedules": {"config": chosen}}}, instance=instance, raise_on_error=False
        )
    failure = result.failure_data_for_node("schedules")
    assert failure is not None and "plan fused_sparse_dist was stopped" in str(failure.error)
    assert len(Lake(tmp_path).known(RUN_MARK)) == 1


def test_an_illegal_plan_fails_its_check(tmp_path: Path) -> None:
    legal = (FOLDER / "mlp.toml").read_text()
    (plan := tmp_path / "backwards.toml").write_text(legal.replace('"CopyBatch"]', '"Backward"]'))
    job = definitions(str(tmp_path / "lake")).resolve_job_def("schedule_benchmark")
    chosen = {"plans": ["mlp", str(plan)], "engines": ["sw"], "device": "simulated"}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            run_config={"ops": {"schedules": {"config": chosen}}}, instance=instance, raise_on_error=False
        )
        (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("legal_plan", False)
    assert "backwards.toml:" in str(check.metadata[str(plan)].value)
    assert not Lake(tmp_path / "lake").known(RUN_MARK)


def test_a_plan_that_hangs_is_stopped(tmp_path: Path) -> None:
    job = definitions(str(tmp_path)).resolve_job_def("schedule_benchmark")
    chosen = {"plans": ["mlp"], "engines": ["sw"], "device": "simulated", "timeout_s": 0.01}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            run_config={"ops": {"schedules": {"config": chosen}}}, instance=instance, raise_on_error=False
        )
    failure = result.failure_data_for_node("schedules")
    assert failure is not None and "plan mlp was stopped after timeout_s = 0.01 s" in str(failure.error)
    assert not Lake(tmp_path).known(RUN_MARK)


def test_warnings_of_a_run_are_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings of a schedule run are in the log of the job, even if another plan fails afterwards."""

    def first_only(plan: str, *_: Any) -> subprocess.CompletedProcess[str]:
        if plan != "mlp":
            raise dg.Failure(f"plan {plan} was stopped")
        return subprocess.CompletedProcess([], 0, "mlp: 20 iterations", "torch sees no CUDA device\n")

    monkeypatch.setattr("assets.schedule._run", first_only)
    job = definitions(str(tmp_path)).resolve_job_def("schedule_benchmark")
    chosen = {"plans": ["mlp", "fused_sparse_dist"], "engines": ["sw"]}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            run_config={"ops": {"schedules": {"config": chosen}}}, instance=instance, raise_on_error=False
        )
        logged = {entry.user_message: entry.level for entry in instance.all_logs(result.run_id)}
    assert logged["mlp: 20 iterations"] == logging.INFO
    assert logged["torch sees no CUDA device"] == logging.WARNING


def test_a_run_with_a_later_one_in_the_lake_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is not compared if the lake has a later one.

    The question answers with the latest runs, and another job may have finished a later run in the meantime.
    """
    monkeypatch.setattr("assets.schedule.rows_of_question", lambda con, name: [{"run_id": "later", "period_ns": 7}])
    with duckdb.connect() as con:
        assert _compared(con, ["later", "mine"]).splitlines() == [
            "| run_id | period_ns |",
            "|---|---|",
            "| later | 7 |",
        ]
        assert _compared(con, ["mine"]) == "The lake has a later run of each plan, engine, device, size and jitter."


def words_of(monkeypatch: pytest.MonkeyPatch, **config: Any) -> list[str]:
    """Return the command-line options of each process that a configuration starts, one string per process."""
    commands: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess:
        commands.append(" ".join(command[command.index("mlp") + 1 :]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    chosen = ScheduleConfig(**config)
    for engines in _turns(chosen):
        _run("mlp", engines, chosen, Path("out"))
    return commands


def test_engines_are_compared_with_serial_and_run_by_themselves_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = "--out out --iterations 50 --warmup 5 --seed 0 --jitter-us 0.0"
    assert words_of(monkeypatch) == [f"--compare serial sw dataflow --rounds 5 {usual}"]
    assert words_of(monkeypatch, engines=["sw", "dataflow"], max_depth=7, trace=True, device="cpu") == [
        f"--engine sw {usual} --device cpu --trace",
        f"--engine dataflow {usual} --device cpu --max-depth 7 --trace",
    ]
    assert words_of(monkeypatch, jitter_us=200.0, jitter_task="Forward") == [
        f"--compare serial sw dataflow --rounds 5 {usual.replace('0.0', '200.0')} --jitter-task Forward"
    ]
    assert words_of(monkeypatch, engines=["serial", "sw"], rounds=2, profile=True, max_depth=7) == [
        f"--compare serial sw --rounds 2 {usual} --max-depth 7 --profile"
    ]


def test_one_run_at_a_time_on_the_device() -> None:
    graph = definitions("").resolve_asset_graph()
    assert graph.get(dg.AssetKey("schedule_runs")).pools == {POOL}
