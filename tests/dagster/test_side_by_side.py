"""Two runs, each in its own process. The next run does the work that a killed run left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import pipelines.runs.materialize.per_trace as per_trace
from dagster_project.runs_in_progress import PARTITION_TAG, PURPOSE_TAG, failed_last
from pipelines.lake import Lake
from tests.dagster.pausing import run
from tests.dagster.tiny import write_trace

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def big(tmp_path: Path, inbox: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process of a run that has ingested its file and pauses at its batch."""
    (inbox / "big").mkdir()
    file, gate = write_trace(inbox / "big" / "rank0.json"), tmp_path / "gate"
    command = [sys.executable, "-m", "tests.dagster.pausing", str(tmp_path / "lake"), str(file), str(gate)]
    process = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not gate.exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    yield process
    process.kill()
    process.wait()


def batches_of(lake: Lake, table: str) -> set[str]:
    return {path.stem for path in lake.committed_files(table)}


def captures_of(lake: Lake) -> int:
    with lake.connect(["captures"]) as con:
        return con.execute("SELECT count(*) FROM captures").fetchall()[0][0]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the id of each batch that a run in this process computes."""
    batches: list[str] = []
    compute = per_trace._compute_batch
    monkeypatch.setattr(
        per_trace, "_compute_batch", lambda lake, work: (batches.append(work.batch.batch_id), compute(lake, work))[1]
    )
    return batches


@pytest.mark.slow
def test_the_next_run_does_what_a_killed_one_left(
    big: subprocess.Popen[bytes], inbox: Path, tmp_path: Path, started: list[str]
) -> None:
    lake = Lake(tmp_path / "lake")
    (of_big,) = batches_of(lake, "traces")
    big.send_signal(signal.SIGKILL)
    big.wait()
    (inbox / "small").mkdir()
    assert run(str(lake.root), str(write_trace(inbox / "small" / "rank0.json", 5)))
    assert len(started) == 2 and of_big in started
    assert batches_of(lake, "kernels") == batches_of(lake, "traces") and captures_of(lake) == 2


@dg.job(name="ingest_and_analyse")
def _nothing() -> None: ...


def test_a_run_beside_one_that_failed_does_not_make_up_for_it() -> None:
    """A successful run that began before another run failed does not make up for the failure.

    It may have listed the folder before the failed run's files arrived. Only a run that begins afterwards counts.
    """
    tags = {PARTITION_TAG: "2026-01-02"}
    with dg.DagsterInstance.ephemeral() as instance:
        failing = instance.create_run_for_job(_nothing, tags=tags)
        assert _nothing.execute_in_process(instance=instance, tags=tags).success  # began before the other failed
        instance.report_run_failed(failing)
        assert [record.dagster_run.run_id for record in failed_last(instance, _nothing.name)] == [failing.run_id]
        assert _nothing.execute_in_process(instance=instance, tags=tags).success
        assert failed_last(instance, _nothing.name) == []


@pytest.mark.parametrize("has_purpose", [False, True])
def test_a_run_of_a_part_of_the_job_does_not_make_up_for_one_that_failed(has_purpose: bool) -> None:
    """A successful run of a part of the job does not make up for a failed run.

    `daily` may see nothing to do while a run is in progress, and its own run may end after that run has failed.
    """

    @dg.asset
    def fleet_today() -> None: ...

    job = dg.define_asset_job("ingest_and_analyse", [fleet_today])
    whole = dg.Definitions(assets=[fleet_today], jobs=[job]).resolve_job_def("ingest_and_analyse")
    tags = {PARTITION_TAG: "2026-01-02"}
    with dg.DagsterInstance.ephemeral() as instance:
        failing = instance.create_run_for_job(whole, tags=tags)
        instance.report_run_failed(failing)
        part = [dg.AssetKey("fleet_today")]
        assert whole.execute_in_process(instance=instance, tags=tags, asset_selection=part).success
        assert [record.dagster_run.run_id for record in failed_last(instance, whole.name)] == [failing.run_id]
        of_purpose = {**tags, PURPOSE_TAG: "fleet"} if has_purpose else tags
        assert whole.execute_in_process(
            instance=instance, tags=of_purpose, asset_selection=part if has_purpose else None
        ).success
        assert failed_last(instance, whole.name) == []
