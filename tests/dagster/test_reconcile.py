"""The sensor of the watched folder.

A file is done when it is in the lake, whatever happened to the runs that were to ingest it.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import duckdb
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import RUN_KEY_TAG

import assets.traces
import pipelines.lake.inbox
from assets.metadata import PROCESS_TAG, today
from dagster_project import sensors
from dagster_project.old_runs import old_runs_sensor
from dagster_project.runs_in_progress import START_SECONDS
from dagster_project.sensors import trace_file_sensor, wait_seconds
from pipelines.base.paths import path_text
from pipelines.base.processes import is_alive, this_process
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import CATALOG
from pipelines.lake.commit.ingested_files import forget_missing, settled
from pipelines.lake.commit.sensor_lists import files_of
from pipelines.lake.inbox import look, waiting
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import IngestReport, ingest, reject_files
from pipelines.readers.inputs import EventInput, TraceRow
from pipelines.runs.store import open_store
from tests.dagster.conftest import only_ingest
from tests.dagster.tiny import age, write_trace

ROOT = Path(__file__).resolve().parents[2]


class World:
    """An inbox, a lake, an instance, and a clock that tests set."""

    def __init__(self, folder: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake, self.inbox = Lake(folder / "lake"), inbox
        self.instance = dg.DagsterInstance.ephemeral()
        self.sensor = trace_file_sensor(str(self.lake.root))
        self.cursor: str | None = None
        self.ahead = 0.0
        self.reason = ""
        monkeypatch.setattr(sensors.time, "time", lambda: time.time_ns() / 1e9 + self.ahead)

    def tick(self) -> list[dg.RunRequest]:
        answer = self.sensor(dg.build_sensor_context(instance=self.instance, cursor=self.cursor))
        self.reason = str(answer.skip_message if isinstance(answer, dg.SkipReason) else answer.skip_reason)
        if isinstance(answer, dg.SkipReason):
            return []
        assert isinstance(answer, dg.SensorResult)
        self.cursor = answer.cursor or self.cursor
        return list(answer.run_requests or [])

    def start(self, request: dg.RunRequest) -> subprocess.Popen[str]:
        asked = {"run_config": request.run_config, "tags": {}, "partition_key": request.partition_key}
        command = [sys.executable, "-m", "tests.dagster.dying", "run", self.lake.root, json.dumps(asked)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def files(self, request: dg.RunRequest) -> list[Path]:
        return files_of(self.lake, config(request)["file_list"])

    def column(self, table: str, column: str) -> list[str]:
        files = [str(path) for path in table_files(self.lake.root, table)]
        return [row[0] for row in duckdb.read_parquet(files).select(column).fetchall()] if files else []


@pytest.fixture
def world(tmp_path: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, inbox, monkeypatch)
    yield world
    world.instance.dispose()


def config(request: dg.RunRequest) -> dict:
    return request.run_config["ops"]["ingest"]["config"]


def test_done_is_what_is_in_the_lake_and_not_what_was_asked_for(world: World) -> None:
    first, second = (age(write_trace(world.inbox / f"rank{n}.json", n)) for n in range(2))
    bad = world.inbox / "notes.txt"
    bad.write_text("this is no trace")
    copy = world.inbox / "copy.json"  # its content is in the lake, so it gets no row
    copy.write_bytes(first.read_bytes())
    for path in (bad, copy):
        age(path)
    ingest([first, bad, copy], world.lake)
    assert [world.files(r) for r in world.tick()] == [[second]]
    ingest([second], world.lake)
    assert world.tick() == []
    assert "no new files" in world.reason
    assert world.cursor == "{}"
    assert {path.name: o.status for path, o in settled(world.lake).items()} == {
        "rank0.json": "ok",
        "rank1.json": "ok",
        "copy.json": "known",
        "notes.txt": "rejected",
    }


def test_a_lake_within_the_inbox_is_not_asked_for(world: World) -> None:
    """Files of a lake within the inbox are not requested. Ingestion skips these files, so they would wait forever."""
    world.lake = Lake(world.inbox / "lake")
    world.sensor = trace_file_sensor(str(world.lake.root))
    ingest([file := age(write_trace(world.inbox / "rank0.json"))], world.lake)
    for path in world.lake.root.rglob("*.parquet"):
        age(path)
    assert file.exists() and world.tick() == [] and "no new files" in world.reason


@pytest.mark.parametrize("is_lake_named_by_link", [True, False])
def test_a_lake_within_the_inbox_is_its_own_by_any_path(world: World, is_lake_named_by_link: bool) -> None:
    link = world.inbox.with_name("link")
    link.symlink_to(world.inbox)
    lake_in, inbox = (link, world.inbox) if is_lake_named_by_link else (world.inbox, link)
    lake = Lake(lake_in / "lake")
    ingest([write_trace(inbox / "rank0.json")], lake)
    files = look(inbox).files
    assert len(files) > 1 and waiting(lake, files) == {}
    assert [row.status for row in ingest([inbox], lake).rows] == ["known"]
    assert [row.status for row in ingest([inbox / "lake"], lake).rows] == ["rejected"]  # the folder, not each file


def test_a_trace_that_the_lake_lost_is_asked_for_again(world: World) -> None:
    file = age(write_trace(world.inbox / "rank0.json"))
    ingest([file], world.lake)
    assert world.tick() == []
    (mark,) = table_files(world.lake.root, "traces")
    mark.unlink()
    assert [world.files(r) for r in world.tick()] == [[file]]


@pytest.mark.slow  # 3 s; a trace that the lake lost is tested above
def test_a_trace_that_a_repair_took_out_is_asked_for_again(world: World) -> None:
    """A trace that a repair removed from the lake is requested again.

    This also works if `tracelake ingest` read the file again before the repair, when its content was still known.
    """
    file = age(write_trace(world.inbox / "rank0.json"))
    for status in ("ok", "known"):
        assert ingest([file], world.lake).rows[0].status == status
    (events,) = table_files(world.lake.root, "events")
    events.write_bytes(b"no parquet")
    assert world.tick() == []
    open_store(world.lake.root).check(repair=True)
    assert [world.files(request) for request in world.tick()] == [[file]]


@pytest.mark.slow  # 2 s; broken markers are in tests/runs/test_check.py, broken catalogs in tests/lake/test_catalog.py
def test_a_broken_mark_is_named_and_a_broken_memory_is_begun_anew(world: World) -> None:
    file = age(write_trace(world.inbox / "rank0.json"))
    ingest([file], world.lake)
    (mark,) = table_files(world.lake.root, "traces")
    (world.lake.root / CATALOG).write_bytes(b"SQLite format 3\0" + bytes(4000))
    assert len(world.tick()) == 1
    ingest([file], world.lake)
    assert [o.status for o in settled(world.lake).values()] == ["known"]
    mark.write_bytes(b"no parquet")
    world.tick()
    assert str(mark) in world.reason


@pytest.mark.slow  # 4 s
def test_what_failed_is_asked_for_again_later_each_time_and_in_processes_of_its_own(world: World) -> None:
    age(write_trace(world.inbox / "rank0.json"))
    (first,) = world.tick()
    assert "isolate" not in config(first)
    keys, waits, since = {first.run_key}, [], 0.0
    while sum(waits) < 24 * 3600:
        world.ahead += 5 if len(waits) < 4 else 600
        for again in world.tick():
            assert config(again)["isolate"] is True
            keys.add(again.run_key)
            waits.append(world.ahead - since)
            since = world.ahead
    assert waits[:4] == pytest.approx([30, 60, 120, 240], abs=5)
    assert len(keys) == len(waits) + 1 < 40  # a day of failures; for Dagster each attempt is a separate run
    assert wait_seconds(10_000) == 3600


def test_one_run_at_a_time_and_a_killed_one_does_not_block(world: World) -> None:
    age(write_trace(world.inbox / "rank0.json"))
    run = world.instance.create_run_for_job(
        dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse"),
        status=dg.DagsterRunStatus.STARTED,
        tags={PROCESS_TAG: this_process()},
    )
    assert world.tick() == []
    assert run.run_id in world.reason and "1 files wait" in world.reason
    world.ahead += 10 * START_SECONDS  # the run is in progress as long as its process lives
    assert world.tick() == []
    world.ahead = 0
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    world.instance.add_run_tags(run.run_id, {PROCESS_TAG: this_process().replace(str(os.getpid()), str(gone.pid), 1)})
    assert len(world.tick()) == 1
    failed = world.instance.get_run_by_id(run.run_id)
    assert failed is not None and failed.status == dg.DagsterRunStatus.FAILURE


def test_a_run_in_the_queue_is_in_progress_however_long_it_waits(world: World) -> None:
    age(write_trace(world.inbox / "rank0.json"))
    job = dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse")
    world.instance.create_run_for_job(job)  # the run was requested, but is not in the queue yet
    world.ahead = START_SECONDS - 60
    assert world.tick() == [] and "is in progress, 1 files wait" in world.reason
    (run,) = world.instance.get_runs()
    world.instance.delete_run(run.run_id)
    place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    origin = {
        "remote_job_origin": RemoteJobOrigin(place, job.name),
        "job_code_origin": dg.reconstructable(_NOTHING).get_python_origin(),
    }
    world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.QUEUED, **origin)
    world.ahead = 10 * START_SECONDS
    assert world.tick() == [] and "is in progress, 1 files wait" in world.reason


def test_a_run_that_was_executed_again_is_not_its_parents_process(world: World) -> None:
    """A run that repeats a killed run does not count as ended because its parent's process ended.

    Dagster copies the tags of a killed run to the run that repeats it by hand.
    """
    age(write_trace(world.inbox / "rank0.json"))
    job = dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    tags = {PROCESS_TAG: this_process().replace(str(os.getpid()), str(gone.pid), 1)}
    parent = world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.FAILURE, tags=tags)
    again = world.instance.create_run_for_job(
        job,
        status=dg.DagsterRunStatus.STARTING,
        tags=tags,
        parent_run_id=parent.run_id,
        root_run_id=parent.run_id,
    )
    assert world.tick() == [] and again.run_id in world.reason
    world.ahead = START_SECONDS + 60
    assert len(world.tick()) == 1


def test_a_run_that_never_said_its_process_is_given_up(world: World) -> None:
    age(write_trace(world.inbox / "rank0.json"))
    job = dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse")
    world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING)
    world.ahead = START_SECONDS - 60
    assert world.tick() == []
    world.ahead = START_SECONDS + 60
    assert len(world.tick()) == 1


@dg.job(name="ingest_and_analyse")
def _NOTHING() -> None: ...


def test_a_run_that_failed_after_its_files_were_in_is_repeated_for_its_day_and_not_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "DAYS", dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1))
    job = dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse")
    tags = {"dagster/partition": "2026-01-02"}
    repeats = []
    for _ in range(6):
        run = world.instance.create_run_for_job(job, tags=tags)
        world.instance.report_run_failed(run)
        assert world.tick() == []  # not immediately
        world.ahead += 3000
        requests = world.tick()
        if not requests:
            break
        repeats += requests
        tags = {"dagster/partition": requests[0].partition_key or "", **requests[0].tags}
    assert [(r.partition_key, config(r)["files"]) for r in repeats] == [("2026-01-02", [])] * sensors.MAX_REPEATS


def test_an_earlier_day_is_repeated_although_files_keep_coming(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed run of an earlier day is repeated although new files keep coming.

    New files start runs of today, which compute nothing of the earlier day.
    """
    monkeypatch.setattr(sensors, "DAYS", dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1))
    job = dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse")
    for day in ("2026-01-02", today()):
        world.instance.report_run_failed(world.instance.create_run_for_job(job, tags={"dagster/partition": day}))
    first = age(write_trace(world.inbox / "rank0.json"))
    # the delay before the day is repeated is not over
    assert [world.files(request) for request in world.tick()] == [[first]]
    second = age(write_trace(world.inbox / "rank1.json", 1))
    world.ahead += wait_seconds(1) + 1
    (request,) = world.tick()
    assert (request.partition_key, config(request)["files"]) == ("2026-01-02", [])
    done = world.instance.create_run_for_job(job, tags={"dagster/partition": "2026-01-02"})
    world.instance.report_dagster_event(dg.DagsterEvent("PIPELINE_SUCCESS", job.name), done.run_id)
    assert [world.files(request) for request in world.tick()] == [[second, first]]  # the requested file is still known


def test_a_repeat_that_was_cancelled_does_not_hold_up_new_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled repeat is not requested again, and does not hold up new files.

    Dagster does not start a second run with the same key, so each tick would request a run that never starts.
    """
    monkeypatch.setattr(sensors, "DAYS", dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC", end_offset=1))
    job = dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse")
    world.instance.report_run_failed(world.instance.create_run_for_job(job, tags={"dagster/partition": "2026-01-02"}))
    world.ahead = wait_seconds(1) + 1
    (repeat,) = world.tick()
    tags = {"dagster/partition": "2026-01-02", RUN_KEY_TAG: repeat.run_key or "", **repeat.tags}
    run = world.instance.create_run_for_job(job, tags=tags)
    world.instance.report_dagster_event(dg.DagsterEvent("PIPELINE_CANCELED", job.name), run.run_id)
    assert world.tick() == []
    file = age(write_trace(world.inbox / "rank0.json"))
    assert [world.files(request) for request in world.tick()] == [[file]]


def test_a_day_of_which_the_lake_has_nothing_is_not_repeated(world: World) -> None:
    """A failed run of a day without batches in the lake is not repeated.

    The day no longer has a partition, so a request for it would fail every tick.
    """
    job = dg.Definitions(jobs=[_NOTHING]).resolve_job_def("ingest_and_analyse")
    world.instance.report_run_failed(world.instance.create_run_for_job(job, tags={"dagster/partition": "2025-01-02"}))
    world.ahead = 3000
    assert world.tick() == []


def test_what_cannot_be_looked_at_is_named_and_the_rest_goes_in(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    good = age(write_trace(world.inbox / "rank0.json"))
    locked = world.inbox / "locked"
    locked.mkdir()
    (world.inbox / "linked").symlink_to(world.inbox)
    (world.inbox / "lost").symlink_to(world.inbox / "nowhere")
    os.mkfifo(world.inbox / "pipe")
    strange = Path(os.fsdecode(os.fsencode(world.inbox) + b"/rank1\xff.json"))
    age(write_trace(strange, 1))
    really = os.scandir

    def scandir(path):
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied")
        return really(path)

    monkeypatch.setattr(pipelines.lake.inbox.os, "scandir", scandir)
    (request,) = world.tick()
    listed = [path_text(path) for path in world.files(request)]
    assert listed == [str(good), f"{world.inbox}/rank1\\xff.json"]
    json.dumps(request.run_config, ensure_ascii=False).encode()
    assert world.tick() == []
    for name in ("locked", "linked", "lost", "pipe"):
        assert f"{name} " in world.reason


def test_a_folder_that_is_deeper_than_a_path_may_be(world: World) -> None:
    here = os.getcwd()
    try:
        os.chdir(world.inbox)
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        Path("rank0.json").write_text("{}")
    finally:
        os.chdir(here)
    good = age(write_trace(world.inbox / "rank0.json"))
    assert [world.files(r) for r in world.tick()] == [[good]]
    world.tick()
    assert "File name too long" in world.reason


def test_what_is_settled_is_forgotten_with_its_file(world: World) -> None:
    for n in range(2):
        ingest([age(write_trace(world.inbox / f"rank{n}.json", n))], world.lake)
    assert world.tick() == []
    (world.inbox / "rank1.json").unlink()
    assert forget_missing(world.lake) == 1
    assert len(settled(world.lake)) == 1


def test_what_is_settled_stays_while_the_disk_of_the_inbox_is_away(world: World) -> None:
    """The records of settled files stay while the disk of the inbox is not mounted.

    Otherwise each of the files would be read again.
    """
    ingest([age(write_trace(world.inbox / "rank0.json"))], world.lake)
    sensor = old_runs_sensor(str(world.lake.root))
    away = world.inbox.rename(world.inbox.with_name("away"))
    for is_mount_point in (False, True):
        if is_mount_point:
            world.inbox.mkdir()
        sensor(dg.build_sensor_context(instance=world.instance))
        assert len(settled(world.lake)) == 1
    world.inbox.rmdir()
    away.rename(world.inbox)
    assert world.tick() == [] and "no new files" in world.reason


def test_what_changed_while_it_was_read_is_not_settled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    file = age(write_trace(world.inbox / "rank0.json"))
    import pipelines.readers.kineto.events_file

    really = pipelines.readers.kineto.events_file.load_events

    def read(request):
        loaded = really(request)
        age(write_trace(file, 77), 30)
        return loaded

    monkeypatch.setattr(pipelines.readers.kineto.events_file, "INPUT", EventInput((), read))
    ingest([file], world.lake)
    monkeypatch.undo()
    assert settled(world.lake) == {}


def test_a_file_whose_time_is_in_the_future_is_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose modification time is in the future is requested.

    The clock of the machine that wrote it was ahead. The file counts as quiet once it has been here for some time.
    """
    file = age(write_trace(world.inbox / "rank0.json"), -86_400)
    assert world.tick() == []
    monkeypatch.setattr(sensors, "QUIET_SECONDS", -1.0)
    assert [world.files(request) for request in world.tick()] == [[file]]


def test_rejected_unread(world: World) -> None:
    file = age(write_trace(world.inbox / "rank0.json"))
    reject_files({file: "for a reason"}, world.lake)
    assert world.column("rejects", "reason") == ["for a reason"]
    assert world.tick() == []


def test_a_file_that_was_rejected_cannot_kill_the_run_that_reads_the_watched_folder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejected file cannot kill the run that reads the watched folder.

    The `daily` job retries the file in a child process, after the new files are committed.
    """
    rejected, new = (write_trace(world.inbox / f"rank{n}.json", n) for n in range(2))
    reject_files({rejected: "reading it crashed the process 2 times"}, world.lake)
    reads: list[tuple[str, list[Path]]] = []
    for name in ("ingest", "ingest_isolated"):

        def read(files: list[Path], *_: object, by: str = name) -> IngestReport:
            reads.append((by, files))
            return IngestReport([TraceRow(str(path), "rejected") for path in files])

        monkeypatch.setattr(assets.traces, name, read)
    job = only_ingest(str(world.lake.root)).resolve_job_def("ingest_and_analyse")
    done = job.execute_in_process(instance=world.instance, partition_key=today())
    assert reads == [("ingest", [new]), ("ingest_isolated", [rejected])]
    (made, *_) = done.get_asset_materialization_events()
    assert made.materialization.metadata["files_given"].value == 2
    assert made.materialization.metadata["files_rejected"].value == 2


def test_names_of_processes() -> None:
    assert is_alive(this_process())
    assert is_alive("another-host:1:5")
    assert not is_alive(this_process() + "0")  # the process id belongs to another process now


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_every_file_ends_once_in_traces_or_rejects(world: World, seed: int) -> None:
    """Every file ends once in `traces` or `rejects`.

    Runs are killed, one file kills its process each time, another raises, and bad files are among the good ones.
    """
    choice = random.Random(seed)
    good = [age(write_trace(world.inbox / f"rank{n}.json", n)) for n in range(3)]
    poison = [age(write_trace(world.inbox / f"{name}.json", 50 + n)) for n, name in enumerate(("kills", "raises"))]
    for name, content in (
        ("empty.json", b""),
        ("cut.json.gz", b"\x1f\x8b\x08\x00"),
        ("bytes\xff.json", b"\x7f" + choice.randbytes(98)),
    ):
        path = Path(os.fsdecode(os.fsencode(world.inbox) + b"/" + name.encode("latin-1")))
        path.write_bytes(content)
        poison.append(age(path))
    kills = 1
    for _ in range(12):
        world.ahead += 40 if _ else 0
        requests = world.tick()
        if not requests and "no new files" in world.reason:
            break
        for request in requests:
            run = world.start(request)
            if kills and "isolate" in config(request):
                kills -= 1
                time.sleep(choice.uniform(2.5, 4.0))
                run.kill()
            run.communicate()
    assert "no new files" in world.reason
    ended = world.column("traces", "path") + world.column("rejects", "path")
    assert sorted(ended) == sorted(path_text(path) for path in (*good, *poison))
    assert len(world.column("traces", "path")) == len(good)
    assert not kills
    reasons = dict(zip(world.column("rejects", "path"), world.column("rejects", "reason"), strict=True))
    assert "SIGKILL" in reasons[str(world.inbox / "kills.json")]
    assert "as no reader should" in reasons[str(world.inbox / "raises.json")]
