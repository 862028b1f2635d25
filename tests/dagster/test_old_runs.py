"""Deletion of old runs from Dagster's records, with their events and logs on disk.

New runs and runs in progress stay.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.definitions import defs
from dagster_project.old_runs import delete_old_runs


@dg.job
def chatty() -> None:
    """Log large metadata, as the project's tables do."""

    @dg.op
    def says(context: dg.OpExecutionContext) -> None:
        context.log.info("x" * 100_000)

    says()


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_deleting_old_runs(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        before = size(tmp_path)
        runs = [chatty.execute_in_process(instance=instance).run_id for _ in range(4)]
        waits = instance.create_run_for_job(chatty, status=dg.DagsterRunStatus.STARTED)
        assert size(tmp_path) > before + 400_000
        assert delete_old_runs(instance, keep_runs=2) == 2
        assert {run.run_id for run in instance.get_runs()} == {*runs[2:], waits.run_id}
        assert not [p for p in tmp_path.rglob("*") for run in runs[:2] if run in str(p)]
        assert instance.all_logs(runs[3])
        assert delete_old_runs(instance, keep_runs=2) == 0
        # By age the newest run also stays, because it records whether the last run failed.
        assert delete_old_runs(instance, keep_days=7, now=datetime.now(UTC) + timedelta(days=8)) == 1
        assert {run.run_id for run in instance.get_runs()} == {runs[3], waits.run_id}
        with pytest.raises(ValueError, match="at least 1 run"):
            delete_old_runs(instance, keep_runs=0)


def test_it_is_on_by_default_and_bears_wrong_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sensor,) = [s for s in defs.sensors or () if s.name == "old_runs"]
    assert isinstance(sensor, dg.SensorDefinition)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    monkeypatch.setenv("TRACELAKE_LAKE", str(tmp_path / "lake"))
    with dg.DagsterInstance.ephemeral() as instance:
        for value, said in (("100", "no run is old"), ("many", "nothing was deleted"), ("0", "at least 1 run")):
            monkeypatch.setenv("TRACELAKE_KEEP_RUNS", value)
            answer = sensor(dg.build_sensor_context(instance=instance))
            assert isinstance(answer, dg.SkipReason)
            assert said in str(answer.skip_message)
