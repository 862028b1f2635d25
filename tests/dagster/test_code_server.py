"""Runs as forked copies of a process that has loaded everything. They differ from other runs in no other way."""

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.utils import FuturesAwareThreadPoolExecutor

from assets.metadata import PROCESS_TAG
from dagster_project import code_server, preload
from dagster_project.code_server import ForkingServer, forks
from dagster_project.sensors import SIGNS_OF_LIFE
from pipelines.lake import Lake
from tests.dagster.test_old_runs import chatty
from tests.dagster.test_ui import JSON, Ui, running  # noqa: F401
from tests.dagster.tiny import write_trace

LOCATION = {"repositoryName": "__repository__", "repositoryLocationName": "dagster_project.definitions"}
LAUNCH = "mutation($p: ExecutionParams!) {launchRun(executionParams: $p) {__typename}}"


def test_dagsters_server_starts_runs_by_forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's server starts the processes of runs by forking.

    The test fails if Dagster no longer stores the start method in `_mp_ctx`.
    """
    started: list[str] = []
    monkeypatch.setattr(code_server, "ensure_running", lambda: started.append("fork server"))
    server = ForkingServer(threading.Event(), logging.getLogger("test"), FuturesAwareThreadPoolExecutor(1))
    context: Any = vars(server)["_mp_ctx"]
    assert context.get_start_method() == "forkserver" and started == ["fork server"]


@pytest.mark.slow  # 4 s; test_ui.py tests runs of an earlier UI
def test_runs_of_an_earlier_code_server_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of an earlier code server are marked as failed, because they were children of that server.

    This applies to any job, because each writing run would block the queue for a day.
    """
    monkeypatch.setattr(code_server, "grpc_command", lambda prog_name: None)
    monkeypatch.setattr(code_server.server, "DagsterApiServer", None)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").touch()
    with dg.DagsterInstance.get() as instance:
        run = instance.create_run_for_job(chatty, status=dg.DagsterRunStatus.STARTED)
        code_server.main()
        assert instance.get_runs()[0].run_id == run.run_id
        assert instance.get_runs()[0].status == dg.DagsterRunStatus.FAILURE


def test_what_a_run_imports_later_is_there() -> None:
    """The modules that a run imports later are preloaded.

    A listed module that no longer exists would only make runs slower, without an error.
    """
    preload.load()
    assert set(preload.LATER) <= sys.modules.keys()


def _look(say: Callable[[object], None]) -> None:
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()]
    say(("dagster_project.definitions" in sys.modules, threading.active_count(), files))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc to see open files in")
def test_a_copy_has_loaded_the_definitions_and_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_LAKE", str(tmp_path / "lake"))
    context = forks()
    ours, theirs = context.Pipe()
    process = context.Process(target=_look, args=(theirs.send,))  # pyright: ignore[reportAttributeAccessIssue]
    process.start()
    assert ours.poll(60)
    is_loaded, n_threads, files = ours.recv()
    process.join()
    assert is_loaded and n_threads == 1
    assert not [name for name in files if name.endswith((".db", ".sqlite", ".duckdb", ".parquet", ".lock"))]


def _launch(ui: Ui, instance: dg.DagsterInstance, *files: Path) -> str:
    """Start a run of few assets that ingests these files, and return its id."""
    assets = [{"path": list(key.path)} for key in SIGNS_OF_LIFE]
    config = {"ops": {"ingest": {"config": {"files": [str(file) for file in files]}}}}
    day = {"key": "dagster/partition", "value": f"{datetime.now(UTC):%Y-%m-%d}"}
    selector = {"jobName": "ingest_and_analyse", **LOCATION, "assetSelection": assets}
    params = {"selector": selector, "mode": "default", "runConfigData": config, "executionMetadata": {"tags": [day]}}
    status, answer = ui.ask(body=json.dumps({"query": LAUNCH, "variables": {"p": params}}).encode(), **JSON)
    assert status == 200 and "LaunchRunSuccess" in answer, answer
    return instance.get_runs(limit=1)[0].run_id


def _until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until
        time.sleep(0.2)
    return value


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc to find processes with")
def test_a_run_that_is_killed_counts_as_failed_and_the_next_does_its_work(
    running: Ui,  # noqa: F811
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / ".dagster"))
    file, lake = write_trace(tmp_path_factory.mktemp("in") / "rank0.json"), Lake(tmp_path)
    with dg.DagsterInstance.get() as instance:

        def run(run_id: str) -> dg.DagsterRun:
            dagster_run = instance.get_run_by_id(run_id)
            assert dagster_run
            return dagster_run

        with lake.commit_lock():  # the run waits
            first = _launch(running, instance, file)
            process = _until(lambda: run(first).tags.get(PROCESS_TAG))
            pid = int(process.split(":")[1])
            assert b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
            os.kill(pid, signal.SIGKILL)
            _until(lambda: run(first).is_finished)
        assert run(first).status == dg.DagsterRunStatus.FAILURE
        second = _launch(running, instance, file)
        _until(lambda: run(second).is_finished)
        assert run(second).status == dg.DagsterRunStatus.SUCCESS
    assert len(lake.known_traces()) == 1
