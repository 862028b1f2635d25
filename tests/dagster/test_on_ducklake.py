"""Dagster with the address of a DuckLake as its lake: the same assets, sensor, checks and upkeep."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from assets.metadata import lake_folder, today
from assets.models import model_specs, upstream_first
from assets.units import _settle, fail_units, ingest_units
from dagster_project.definitions import definitions
from dagster_project.sensors import trace_file_sensor
from pipelines.engines import isolated
from pipelines.engines.run import FailedUnit, Followed, materialize_on
from pipelines.lake import Lake
from pipelines.lake.commit.ingested_files import states_of
from pipelines.lake.inbox import waiting
from pipelines.models.catalog import load_catalog
from pipelines.readers.child_processes import Stopped
from pipelines.readers.inputs import TraceRow
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.store import open_store
from tests.dagster.tiny import age, write_trace
from tests.runs.store.conftest import need_extensions


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    need_extensions("sqlite")
    monkeypatch.setenv("TRACELAKE_DAGSTER_FILES", str(tmp_path / "files"))
    return f"ducklake:sqlite:{tmp_path}/c.sqlite?data={tmp_path}/data"


def test_definitions_are_those_of_a_folder(address: str, tmp_path: Path) -> None:
    """A DuckLake has the definitions of a folder, except the overlay and runs of plans."""
    mine, folders = definitions(address), definitions(str(tmp_path / "lake"))
    keys, all_keys = (defs.resolve_asset_graph().get_all_asset_keys() for defs in (mine, folders))
    assert keys <= all_keys
    left_out = {key.to_user_string() for key in all_keys - keys}
    assert "overlay" in left_out and {name for name in left_out if not name.startswith("schedule_")} == {"overlay"}
    own = {key.asset_key.to_user_string() for key in folders.resolve_asset_graph().asset_check_keys - mine.resolve_asset_graph().asset_check_keys}  # fmt: skip
    assert own == {"schedule_plans", "schedule_runs"}
    for name in ("ingest_and_analyse", "analyse"):
        steps, all_steps = ({node.name for node in defs.resolve_job_def(name).graph.nodes} for defs in (mine, folders))
        assert steps == all_steps - {"overlay"}
    assert not (tmp_path / "c.sqlite").exists()


def test_a_file_that_is_a_set_of_its_own_is_done_with_its_run(tmp_path: Path) -> None:
    """A file that forms a set by itself, such as a memory snapshot, is done with its run.

    Its key is that of a set, which is not among the traces of the store.
    """
    lake = Lake(tmp_path / "files")
    files = [tmp_path / name for name in ("rank0.json", "rank0.pickle", "failed.json")]
    for file in files:
        file.write_text("{}")
    rows = [TraceRow(str(files[0]), "ok", "a trace", unpacked_bytes=2), TraceRow(str(files[1]), "ok", "a snapshot")]
    states = states_of(files)
    _settle(lake, states, Followed(rows=rows, failed=[FailedUnit("unit", (str(files[2]),), "", 3)]))
    assert list(waiting(lake, states, known=lambda keys: {"a trace"} & keys)) == [files[2]]


@pytest.mark.parametrize("status", [-signal.SIGTERM, -signal.SIGKILL])
def test_a_file_whose_process_was_stopped_is_not_rejected(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose process ended by SIGTERM is not rejected.

    After SIGKILL the file is rejected, because reading it may have run out of memory.
    """
    rejected: list[str] = []
    monkeypatch.setattr(isolated, "reject_unread", lambda _, reasons: rejected.extend(reasons))
    ended = subprocess.CompletedProcess((), status, b"", b"terminated: the same command run again finishes\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    is_stop = status != -signal.SIGKILL
    with pytest.raises(Stopped) if is_stop else nullcontext():
        isolated.ingest_in_child("ducklake:sqlite:/lake", [Path("/rank0.json")], None)
    assert rejected == ([] if is_stop else ["/rank0.json"])


def child_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the child of an isolated attempt in this process, which saves a second."""

    def run(command: list[str], input: bytes, **_: object) -> subprocess.CompletedProcess[bytes]:
        assert command[2:4] == ["-m", "pipelines.engines.isolated"]
        monkeypatch.setattr(sys, "argv", command[3:])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(input)))
        with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
            status = isolated.main()
        return subprocess.CompletedProcess(command, status, stdout.getvalue().encode(), stderr.getvalue().encode())

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize("is_isolated", [False, True])
def test_a_unit_that_fails_on_the_machine_fails_the_run_and_its_file_waits(
    is_isolated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that fails because of the machine fails the run, and its file waits.

    A full scratch disk is not a fault of the file, in the isolated attempt either. A folder stands in for the address.
    """
    child_in_this_process(monkeypatch)
    monkeypatch.setenv("TRACELAKE_SCRATCH", str(tmp_path / "no disk"))
    own, file = Lake(tmp_path / "files"), write_trace(tmp_path / "rank0.json")
    run = ingest_units(str(tmp_path / "lake"), own, [file], None, is_isolated, lambda _: None)
    with pytest.raises(dg.Failure, match="1 units failed, the first: FileNotFoundError"):
        fail_units(run, allow_retries=False)
    assert list(waiting(own, states_of([file]), known=lambda _: set())) == [file]


def test_an_isolated_attempt_writes_to_the_lake_of_dagster_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An isolated attempt writes only to Dagster's lake.

    Its process ignores settings of the command line, which Dagster does not read.
    """
    child_in_this_process(monkeypatch)
    monkeypatch.setenv("TRACELAKE_STORE", str(tmp_path / "other"))
    monkeypatch.setenv("TRACELAKE_ENGINE", "ray")
    own, file = Lake(tmp_path / "files"), tmp_path / "rank0.json"
    file.write_text("no trace at all")
    run = ingest_units(str(tmp_path / "lake"), own, [file], None, True, lambda _: None)
    assert [row.status for row in run.rows] == ["rejected"] and not run.failed
    assert Lake(tmp_path / "lake").committed_files("rejects") and not (tmp_path / "other").exists()
    assert not list(waiting(own, states_of([file]), known=lambda _: set()))


@pytest.mark.slow
def test_files_of_the_inbox_become_tables_once(
    inbox: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the inbox become tables once.

    The table `kernels` represents all tables, which are computed as `tracelake ingest` and `materialize` do.
    """
    monkeypatch.setattr("pipelines.runs.materialize.per_trace.materialize", partial(materialize, tables=["kernels"]))
    monkeypatch.setattr(
        "assets.units.materialize_on", lambda engine, store, _: materialize_on(engine, store, ["kernels"])
    )
    for n in range(2):
        age(write_trace(inbox / f"rank{n}.json", n))
    (inbox / "broken.json").write_text('{"traceEvents": 7')
    age(inbox / "broken.json")
    defs = definitions(address)
    job = defs.resolve_job_def("ingest_and_analyse")

    def tick(cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
        sensor = trace_file_sensor(address, job)
        context = dg.build_sensor_context(cursor=cursor)
        return sensor(context)  # pyright: ignore[reportReturnType]

    def run(asked: dg.SensorResult | dg.SkipReason, n_files: int) -> None:
        """Start the run that the sensor requests, and check that each trace is then in the lake once."""
        assert isinstance(asked, dg.SensorResult) and asked.run_requests and len(asked.run_requests) == 1, asked
        request = asked.run_requests[0]
        assert request.tags["tracelake/files"] == str(n_files)
        with dg.DagsterInstance.ephemeral() as instance:
            done = job.execute_in_process(run_config=request.run_config, partition_key=today(), instance=instance)
        assert done.success
        verdicts = {
            (evaluation.asset_key.to_user_string(), evaluation.check_name): evaluation
            for evaluation in done.get_asset_check_evaluations()
        }
        assert verdicts["traces", "unique_keys"].passed and not verdicts["rejects", "nothing_rejected"].passed
        with open_store(address).connect() as con:
            assert con.execute("SELECT count(*), count(DISTINCT trace_id) FROM traces").fetchall() == [(2, 2)]
            assert con.execute("SELECT name FROM kernels").fetchall() == [("gemm",)] * 2
            rejects = con.execute("SELECT path, reason FROM rejects").fetchall()
        assert [path for path, _ in rejects] == [str(inbox / "broken.json")]

    asked = tick()
    run(asked, 3)
    assert (tmp_path / "files" / "pages" / "fleet.html").exists()
    again = tick(asked.cursor)
    assert isinstance(again, dg.SensorResult) and "no new files" in str(again.skip_reason), again
    with open_store(address).connect() as con:
        trace = con.execute("SELECT trace_id FROM traces ORDER BY path").fetchall()[0][0]
    open_store(address).forget(trace)  # its file waits again
    run(tick(), 1)
    for upkeep, config in (("retention", {"retire_batches": {"config": {"dry_run": False}}}), ("compaction", {"merge_batches": {"config": {"dry_run": False}}})):  # fmt: skip
        assert defs.resolve_job_def(upkeep).execute_in_process(run_config={"ops": config}).success


def test_results_come_after_those_that_they_show_as_their_upstream() -> None:
    place = {name: number for number, name in enumerate(upstream_first())}
    late = [
        (spec.key.to_user_string(), dep.asset_key.to_user_string())
        for spec in model_specs()
        for dep in spec.deps
        if place.get(dep.asset_key.to_user_string(), -1) > place[spec.key.to_user_string()]
    ]
    assert not late and place.keys() == {*load_catalog().materialized}


def test_dagster_keeps_its_files_beside_its_records(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert lake_folder(address) == str(tmp_path / "files")
    monkeypatch.delenv("TRACELAKE_DAGSTER_FILES")
    monkeypatch.setenv("DAGSTER_HOME", "/data/dagster")
    assert lake_folder(address) == "/data/dagster/tracelake" and lake_folder("/x") == "/x"
