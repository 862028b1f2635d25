"""Dagster's records with files held open: a process sees another process's writes, and deleted runs leave no files."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_project import records
from dagster_project.old_runs import delete_old_runs
from dagster_project.records import EventLog
from dagster_project.serve import prepare

ROOT = Path(__file__).resolve().parents[2]
_ELSEWHERE = """
import sys, dagster as dg
from tests.dagster.test_records import greets
with dg.DagsterInstance.get() as instance:
    assert greets.execute_in_process(instance=instance, run_id=sys.argv[1]).success
"""


@dg.op
def greet(context: dg.OpExecutionContext) -> None:
    context.log.info("hello")


@dg.job
def greets() -> None:
    greet()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    prepare(tmp_path)
    return tmp_path


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.get() as instance:
        yield instance


def messages(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    return [entry.user_message for entry in instance.all_logs(run_id)]


@pytest.mark.slow  # another process; test_logged_rows.py tests the displayed rows
def test_who_watches_a_run_hears_what_another_process_writes(instance: dg.DagsterInstance, home: Path) -> None:
    assert isinstance(instance.event_log_storage, EventLog)
    run_id = "0c7fd1a2-0000-4000-8000-000000000000"
    heard, ended = list[str](), threading.Event()

    def hear(entry: dg.EventLogEntry, _: str) -> None:
        heard.append(entry.user_message)
        if entry.is_dagster_event and entry.dagster_event_type == dg.DagsterEventType.PIPELINE_SUCCESS:
            ended.set()

    instance.watch_event_logs(run_id, None, hear)
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, run_id], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ended.wait(30), heard
    assert heard.count("hello") == 1 and messages(instance, run_id).count("hello") == 1
    with dg.DagsterInstance.from_config(str(home), "nothing-of-the-kind.yaml") as plain:  # Dagster's own settings
        assert messages(plain, run_id) == messages(instance, run_id)


@pytest.mark.slow  # test_old_runs.py tests which runs are deleted
def test_few_files_stay_open_and_deleted_runs_leave_none(instance: dg.DagsterInstance, home: Path) -> None:
    log = EventLog(str(home / "history" / "runs"))
    log.register_instance(instance)
    runs = [greets.execute_in_process(instance=instance).run_id for _ in range(6)]
    for run_id in runs:
        assert len(log.get_logs_for_run(run_id)) > 3
    assert len(log._open) <= records._MOST_OPEN
    assert delete_old_runs(instance, keep_runs=1) == 5
    assert {path.name.partition(".")[0] for path in (home / "history" / "runs").iterdir()} == {"index", runs[-1]}
    assert log.get_logs_for_run(runs[-2]) == []  # the run's file was open here when another process deleted it
    assert greets.execute_in_process(instance=instance).success
    log.dispose()
    assert not log._open
