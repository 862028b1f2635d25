"""Files, folders and globs → the lake: which files are read, the result of each, and the effect of a second run."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Never

import duckdb
import pytest

import pipelines.readers.inputs.events
import pipelines.readers.kineto.events_file
from pipelines.base.errors import TracelakeError
from pipelines.lake import Lake
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.readers import child_processes
from pipelines.readers.child_processes import ingest_isolated
from pipelines.readers.ingest import expand, ingest
from pipelines.readers.inputs import EventInput
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.origin import WrongPattern, describe_origin
from tests.harness import memory
from tests.lake.world import assert_whole, capture, shown, write_trace


def rows(lake: Lake, table: str, columns: str) -> list[tuple]:
    with lake.connect(["traces", table]) as con:
        return con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def test_every_file_of_a_folder_is_named_but_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.json", "a/1.json.gz", "a/notes.txt", ".hidden", ".git/x.json", "a/.part"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    paths = [str(path.relative_to(tmp_path)) for path in expand([tmp_path])]
    assert paths == ["a/1.json.gz", "a/notes.txt", "b.json"]
    assert [path.name for path in expand([str(tmp_path / "*/*.gz"), tmp_path / "a/1.json.gz"])] == ["1.json.gz"]
    assert expand([tmp_path / "no*"]) == [tmp_path / "no*"]  # the reader tries the path and rejects it by name


def test_what_becomes_of_each_file(tmp_path: Path) -> None:
    good = write_trace(tmp_path / "rank3.json", 1)
    (tmp_path / "broken.json").write_text("no trace at all")
    (tmp_path / "copy.json.gz").write_bytes(gzip.compress(good.read_bytes()))
    lake = Lake(tmp_path / "lake")
    report = ingest([tmp_path, tmp_path / "absent.json"], lake)
    assert [(Path(row.path).name, row.status, row.rank) for row in report.rows] == [
        ("broken.json", "rejected", None),
        ("copy.json.gz", "ok", None),
        ("rank3.json", "known", 3),  # the same content
        ("absent.json", "rejected", None),
    ]
    assert all(row.reason for row in report.rejected)
    assert [Path(path).name for (path,) in rows(lake, "rejects", "path")] == ["absent.json", "broken.json"]
    assert rows(lake, "traces", "n_events, status, unpacked_bytes") == [(8, "ok", good.stat().st_size)]
    assert rows(lake, "events", "event_id") == [(i,) for i in range(8)]


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    files = capture(tmp_path / "in")
    lake = Lake(tmp_path / "lake")
    ingest(files, lake)
    before, on_disk = shown(lake), sorted(lake.root.rglob("*.parquet"))
    report = ingest(files, lake)
    assert [row.status for row in report.rows] == ["known", "known", "known", "rejected"]
    assert shown(lake) == before
    assert sorted(lake.root.rglob("*.parquet")) == on_disk


def test_work_is_committed_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines.readers.inputs.events, "BATCH_TRACES", 2)
    lake = Lake(tmp_path / "lake")
    committed = []
    ingest(capture(tmp_path / "in", ranks=5), lake, on_file=lambda _: committed.append(len(lake.known_traces())))
    assert committed == [0, 0, 2, 2, 4, 4]
    assert len(lake.batches()) == 3
    with lake.connect(["traces", "events"]) as con:
        assert assert_whole(con) == 5


def test_a_lake_inside_the_folder_is_passed_over(tmp_path: Path) -> None:
    write_trace(tmp_path / "a.json", 1)
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path], lake)
    assert [row.status for row in ingest([tmp_path], lake).rows] == ["known"]


def test_progress_counts_the_packed_bytes(tmp_path: Path) -> None:
    files = capture(tmp_path / "in")
    read = []
    ingest(files, Lake(tmp_path / "lake"), on_bytes=read.append)
    assert sum(read) >= sum(path.stat().st_size for path in files[:-1])


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), duckdb.IOException("No space left")])
def test_a_full_disk_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(*_: object, **__: object) -> Never:
        raise error

    monkeypatch.setattr(pipelines.readers.kineto.events_file, "INPUT", EventInput((), full))
    lake = Lake(tmp_path / "lake")
    with pytest.raises(type(error), match="No space left"):
        ingest(capture(tmp_path / "in"), lake)
    assert not list(lake.root.glob(".staging/*"))
    assert not table_files(lake.root, "rejects")


def test_a_file_without_a_lake(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "rank3.json", 1, distributedInfo={"rank": 2, "world_size": 4})
    with memory() as con:
        staged = load_trace(con, path)
        catalog = load_catalog()
        for table in ("events", "traces", "findings"):
            described = [row[0] for row in con.execute(f"DESCRIBE {table}").fetchall()]
            assert described == [column.name for column in catalog.models[table].columns]
        rows = con.execute("SELECT trace_id, rank, world_size, trace_start_ns, trace_end_ns FROM traces").fetchall()
    assert rows == [(staged.trace_id, 2, 4, 1000, 321_000)]


def test_a_folder_named_as_a_column_does_not_replace_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "name=job" / "pid=5"
    scratch.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    begin_and_end = [{"ph": ph, "name": "op", "pid": 1, "tid": 2, "ts": ts} for ph, ts in (("B", 1), ("E", 3))]
    path = tmp_path / "rank3.json"
    path.write_text(json.dumps(begin_and_end))
    with memory() as con:
        load_trace(con, path)
        rows = con.execute("SELECT name, pid, duration_ns FROM events WHERE ph = 'B'").fetchall()
    assert rows == [("op", "1", 2000)]


def test_a_child_process_knows_relative_paths_and_reports_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inbox" / "llama").mkdir(parents=True)
    write_trace(tmp_path / "inbox" / "llama" / "rank3.json", 1)
    (tmp_path / "inbox" / "broken.json").write_text("no trace at all")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACELAKE_INBOX", "inbox")
    lake, logged = Lake(tmp_path / "lake"), []
    report = ingest_isolated([Path("inbox/llama/rank3.json"), Path("inbox/broken.json")], lake, on_file=logged.append)
    assert [(Path(row.path).name, row.status, row.rank) for row in report.rows] == [
        ("rank3.json", "ok", 3),
        ("broken.json", "rejected", None),
    ]
    assert logged == report.rows and [row.reason for row in report.rejected] == [
        reason for (reason,) in rows(lake, "rejects", "reason")
    ]
    with lake.connect(["traces"]) as con:
        assert con.execute("SELECT file, job FROM traces").fetchall() == [("rank3.json", "llama")]


def test_a_wrong_setting_is_no_fault_of_the_file_in_a_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong setting in a child process does not reject the file.

    The child's code runs in this process, which saves a second.
    """

    def run(command: list[str], input: bytes, **_: object) -> subprocess.CompletedProcess[bytes]:
        monkeypatch.setattr(sys, "argv", command[command.index("-m") + 1 :])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(input)))
        with redirect_stderr(StringIO()) as stderr:
            status = child_processes.main()
        return subprocess.CompletedProcess(command, status, b"", stderr.getvalue().encode())

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("TRACELAKE_JOB_PATTERN", "runs/(")
    lake = Lake(tmp_path / "lake")
    with pytest.raises(TracelakeError, match=r"^TRACELAKE_JOB_PATTERN=runs/\( is not a regular expression"):
        ingest_isolated([write_trace(tmp_path / "rank3.json", 1)], lake)
    assert not table_files(lake.root, "rejects")


NAMES = {
    "rank0.json": 0,
    "rank_12.json.gz": 12,
    "trace_rank-3.json": 3,
    "worker7.pt.trace.json.gz": 7,
    "node2.rank5.json": 5,
    "job-worker-3_rank27.json": 27,  # the pod's number identifies a host
    "a100_rank0_of_16.json.gz": 0,
    # The rank within a node or a dimension of the mesh is not the rank in the job.
    "node1_local_rank3_rank11.json.gz": 11,
    "localRank0_global_rank8.pt.trace.json.gz": 8,
    "host2_dp_rank0_tp_rank3_rank27.json": 27,
    "rank27.node-rank-1.pp-rank2.json": 27,
    "app_rank3.json": 3,
    "worker2_local_rank1.json": None,
    "local_rank3.json": None,
    "tp_rank3.json": None,
    "3.json.gz": 3,
    "libkineto_activities_1074.json": None,  # a process id
    "host_44237.1698957662168769395.pt.trace.json": None,  # a process id and a time
    "h100_qwen.json.gz": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_rank_in_a_files_name(name: str) -> None:
    assert describe_origin(Path(name), {}, None)["rank"] == NAMES[name]


def test_metadata_says_more_than_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {
        "distributedInfo": {"rank": 34, "world_size": 300},
        "deviceProperties": [{"name": "H100"}, {"name": "H100"}],
        "host_name": "node7",
        "mast_job_name": "train",
    }
    origin = describe_origin(tmp_path / "rank0.json", metadata, None)
    del origin["group_id"]
    expected = {"job": "train", "rank": 34, "world_size": 300, "host": "node7", "device_name": "H100"}
    assert origin == {**expected, "rank_source": "trace", "device_count": 2}
    assert describe_origin(tmp_path / "x.json", metadata, "mine")["job"] == "mine"
    odd = {"distributedInfo": "none", "deviceProperties": [3]}
    assert set(describe_origin(tmp_path / "x.json", odd, None).values()) >= {None}
    monkeypatch.setenv("TRACELAKE_RANK_PATTERN", r"gpu(\d+)")
    assert describe_origin(tmp_path / "rank3.gpu5.json", {}, None)["rank"] == 5


def test_the_job_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def job(path: str, trace_job: str | None = None, chosen_job: str | None = None) -> str | None:
        return describe_origin(tmp_path / path, {"job": trace_job} if trace_job else {}, chosen_job)["job"]

    assert job("in/llama/run3/rank0.json") is None
    monkeypatch.setenv("TRACELAKE_INBOX", str(tmp_path / "in"))
    assert job("in/llama/run3/rank0.json") == job("in/llama/rank0.json") == "llama"
    assert job("in/rank0.json") is None and job("inner/llama/rank0.json") is None
    assert job("in/llama/rank0.json", "told") == "told"  # the trace's job takes precedence over its folder
    monkeypatch.setenv("TRACELAKE_JOB_PATTERN", r"/job-([a-z]+)/")
    assert job("in/x/job-llama/rank0.json") == "llama"
    assert job("in/x/job-llama/rank0.json", "told") == "llama"  # an explicit pattern takes precedence over the trace
    assert job("in/x/job-llama/rank0.json", "told", "given") == "given"
    assert job("in/x/none/rank0.json", "told") == "told" and job("in/x/none/rank0.json") == "x"
    for wrong, why in (("(", "is not a regular expression"), ("llama", "put parentheses around the job")):
        monkeypatch.setenv("TRACELAKE_JOB_PATTERN", wrong)
        with pytest.raises(WrongPattern, match=why):
            job("in/rank0.json")


def test_a_wrong_pattern_rejects_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_JOB_PATTERN", "llama")
    lake = Lake(tmp_path / "lake")
    with pytest.raises(WrongPattern):
        ingest([write_trace(tmp_path / "a.json", 1)], lake)
    assert not lake.exists and lake.batches("rejects") == []


def test_ranks_of_one_folder_and_job_are_one_group(tmp_path: Path) -> None:
    def group_id(path: str, job: str | None = None) -> str:
        return describe_origin(tmp_path / path, {}, job)["group_id"]

    assert group_id("a/rank0.json") == group_id("a/rank1.json")
    assert group_id("a/rank0.json") != group_id("b/rank0.json")
    assert group_id("a/rank0.json", "job") != group_id("a/rank0.json")


def test_metadata_is_kept_as_json(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "a.json", 1, schemaVersion=1, traceName="x")], lake)
    ((text,),) = rows(lake, "traces", "metadata")
    assert json.loads(text) == {"schemaVersion": 1, "traceName": "x"}


def test_what_is_named_within_the_lake_is_rejected_and_else_skipped(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.root.mkdir()
    (inside := lake.root / "a.json").write_text('{"traceEvents": []}')
    report = ingest([inside, lake.root], lake)
    assert [Path(row.path) for row in report.rejected] == [inside, lake.root]
    assert all("the lake's own folder" in str(row.reason) for row in report.rows)
    assert ingest([tmp_path], lake).rows == []


def test_a_lost_file_of_rejects_stops_no_ingestion(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for name in ("none", "either"):
        (tmp_path / f"{name}.json").write_text(f"no trace: {name}")
    ingest([tmp_path / "none.json"], lake)
    for file in table_files(lake.root, "rejects"):
        file.unlink()
    report = ingest([tmp_path / "either.json", write_trace(tmp_path / "a.json", 1)], lake)
    assert [row.status for row in report.rows] == ["rejected", "ok"] and len(lake.known_traces()) == 1
