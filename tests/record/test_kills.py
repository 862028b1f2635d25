"""Recorders that are killed, still run, or cannot write: the files on disk are ingested with the recorder's state."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from pipelines.lake import Lake
from pipelines.lake.names import tables_of
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest
from pipelines.readers.recordings import _state
from pipelines.record import folder as folders
from pipelines.record.folder import Recording
from pipelines.record.host import read_proc

TRAIN = """
import sys, time, torch
from pipelines.record.spans import record_spans
torch.set_num_threads(1)
net, data = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)), torch.randn(3, 4)
spans = record_spans(net, sys.argv[1], 0.5, flush_seconds=0.05)
while True:
    with spans.step():
        net(data).sum().backward()
    time.sleep(0.003)
"""


def asked(lake: Lake, query: str) -> list[tuple]:
    with lake.connect(tables_of("recording")) as con:
        return con.execute(query).fetchall()


def until(there: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def parts(folder: Path, table: str) -> int:
    return len(list(folder.rglob(f"{table}-*.parquet")))


@pytest.mark.slow  # processes that train; test_spans.py checks the files of a recorder
def test_training_that_is_ended_by_a_signal_leaves_its_spans(tmp_path: Path) -> None:
    if not find_spec("torch"):
        pytest.skip("needs torch")
    lake = Lake(tmp_path / "lake")
    # The process that starts the tests may ignore signals, and its children inherit that.
    command = [sys.executable, "-c", TRAIN, str(tmp_path / "in")]
    loop = subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    try:
        until(lambda: parts(tmp_path, "span_samples") >= 2)
        (row,) = ingest([tmp_path / "in"], lake).rows
        assert row.status == "partial" and "still running" in str(row.reason)
        ((state, before, steps),) = asked(lake, "SELECT state, n_rows, n_sampled_steps FROM recordings")
        assert state == "running" and before == row.n_events and steps > 1
        had = parts(tmp_path, "span_samples")
        until(lambda: parts(tmp_path, "span_samples") > had)
    finally:
        loop.send_signal(signal.SIGTERM)
        try:
            assert loop.wait(60) == -signal.SIGTERM
        finally:
            loop.kill()
    (row,) = ingest([tmp_path / "in"], lake).rows
    assert row.status == "partial" and "was killed" in str(row.reason)
    # The earlier rows are replaced, so no row is duplicated.
    query = """
        SELECT r.state, r.end_ns, r.seen_ns > r.start_ns, r.n_rows,
            (SELECT count(*) FROM span_samples) + (SELECT count(*) FROM span_sample_operators) + (SELECT count(*) FROM span_sample_modules),
            (SELECT count(*) FROM (SELECT DISTINCT step, span_id FROM span_samples)), (SELECT count(*) FROM span_samples)
        FROM recordings r"""
    ((state, ended, seen, n_rows, there, distinct, spans),) = asked(lake, query)
    assert (state, ended, seen, n_rows) == ("killed", None, True, there) and distinct == spans and n_rows > before
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        query = (
            "SELECT count(*) > 0, (SELECT count(*) FROM recordings) FROM span_sample_utilization WHERE flops_matrix > 0"
        )
        assert con.execute(query).fetchall() == [(True, 1)]
    assert [row.status for row in ingest([tmp_path / "in"], lake).rows] == ["known"]


@pytest.mark.slow  # 3 s, a process; tests below have recorders that seem dead
def test_a_killed_counter_recorder_leaves_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path / "lake")
    command = [
        sys.executable,
        "-c",
        "import sys; from pipelines.record import folder, counters; folder.FLUSH_SECONDS = 0.05; counters.main()",
    ]
    command += ["--pid", str(os.getpid()), "--hz", "100", "--out", str(tmp_path / "in")]
    recorder = subprocess.Popen(command)
    until(lambda: parts(tmp_path, "host_samples") >= 2)
    recorder.kill()
    until(lambda: read_proc(recorder.pid)["state"] == "Z")  # dead, and its parent has not read its status yet
    (row,) = ingest([tmp_path / "in"], lake).rows
    recorder.wait()
    assert row.status == "partial"
    assert asked(lake, "SELECT state, kind, interval_ns FROM recordings") == [("killed", "counters", 10**7)]
    assert asked(lake, "SELECT count(*) > 3 FROM host_samples") == [(True,)]


@pytest.mark.parametrize("is_of_another_user", [False, True])
def test_a_later_process_of_the_same_number_is_not_the_recorder(
    is_of_another_user: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    if is_of_another_user:
        monkeypatch.setattr(os, "kill", refuse)
    began = read_proc(os.getpid())["start_ticks"]
    recording = {"state": "open", "host": socket.gethostname(), "recorder_pid": os.getpid()}
    states = [_state({**recording, "recorder_start": start}) for start in (began, began - 1, None)]
    assert states == ["running", "killed", "running"]


@pytest.mark.parametrize("pid", [None, -1, 0, 2**31, 2**40, True, 1.5, "1"])
def test_a_number_of_no_process_is_no_running_recorder(pid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that no process can have does not count as a running recorder.

    The file is foreign, so the field may have any value. 0 and -1 would address groups of processes.
    """
    recording = {"state": "open", "host": socket.gethostname(), "recorder_start": None}
    assert _state({**recording, "recorder_pid": pid}) == "killed"
    monkeypatch.setattr(os, "kill", lambda *_: None)  # so that a process with this large pid seems to exist
    assert _state({**recording, "recorder_pid": 2**31 - 1}) == "running"


def test_a_recorder_of_another_host_is_dead_when_it_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    recording = Recording(tmp_path / "in", "counters", None, 1, None)
    recording.add("gpu_samples", [{"t_unix_ns": 1}])
    recording.flush()
    monkeypatch.undo()
    lake = Lake(tmp_path / "lake")
    assert "still running" in str(ingest([tmp_path / "in"], lake).rows[0].reason)
    now = time.time_ns()
    monkeypatch.setattr("pipelines.readers.recordings.time.time_ns", lambda: now + 10**12)
    assert "was killed" in str(ingest([tmp_path / "in"], lake).rows[0].reason)
    monkeypatch.undo()
    recording.close()
    assert [row.status for row in ingest([tmp_path / "in"], lake).rows] == ["ok"]
    assert asked(lake, "SELECT state, (SELECT count(*) FROM gpu_samples) FROM recordings") == [("complete", 1)]
    assert [row.status for row in ingest([tmp_path / "in"], lake).rows] == ["known"]


@pytest.mark.slow  # 3 s
def test_an_older_copy_of_a_recording_is_nothing_new(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "b", "counters", None, 1, None)
    recording.add("gpu_samples", [{"t_unix_ns": 1}])
    recording.flush()
    for older in ("a", "c"):  # folders are ingested in the order of their names
        shutil.copytree(tmp_path / "b", tmp_path / older)
    recording.add("gpu_samples", [{"t_unix_ns": 2}])
    recording.flush()
    lake = Lake(tmp_path / "lake")
    folders = [tmp_path / name for name in ("a", "b", "c")]
    assert [row.status for row in ingest(folders, lake).rows] == ["partial", "partial", "known"]
    assert asked(lake, "SELECT n_rows, (SELECT count(*) FROM gpu_samples) FROM recordings") == [(2, 2)]
    assert [row.status for row in ingest(folders, lake).rows] == ["known"] * 3


def test_a_full_disk_stops_nobody_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PART_ROWS", 2)
    monkeypatch.setattr(folders, "_MOST_PENDING", 5)
    recording = Recording(tmp_path, "counters", None, 1, None, flush_seconds=0.01)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    write = pq.write_table
    monkeypatch.setattr(folders.pq, "write_table", full)
    for at in range(12):
        recording.add("gpu_samples", [{"t_unix_ns": at}])
        time.sleep(0.005)
    with pytest.raises(OSError, match="No space left"):
        recording.close()
    monkeypatch.setattr(folders.pq, "write_table", write)
    folder = recording.close()  # the disk has space again
    (row,) = pq.read_table(folder / "recordings.parquet").to_pylist()
    kept = [
        row["t_unix_ns"] for path in sorted(folder.glob("gpu_samples-*")) for row in pq.read_table(path).to_pylist()
    ]
    assert kept == list(range(12 - len(kept), 12)) and 0 < len(kept) <= 6
    assert row["n_rows"] + row["n_lost"] == 12 and row["n_rows"] == len(kept) and row["state"] == "complete"


def test_a_value_that_a_column_does_not_take_loses_its_rows_only(tmp_path: Path) -> None:
    recording = Recording(tmp_path, "counters", None, 1, None)
    recording.add("gpu_samples", [{"t_unix_ns": 10**30}])
    recording.flush()
    recording.add("gpu_samples", [{"t_unix_ns": 1}])
    (row,) = pq.read_table(recording.close() / "recordings.parquet").to_pylist()
    assert (row["n_rows"], row["n_lost"]) == (1, 1)


def refuse(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Simulate a full disk for the parts of one table."""
    write = pq.write_table

    def full(rows: Any, path: Path, **options: Any) -> None:
        if table in path.name:
            raise OSError(28, "No space left on device")
        write(rows, path, **options)

    monkeypatch.setattr(folders.pq, "write_table", full)


def test_rows_that_wait_for_room_are_not_forgotten_when_those_of_another_table_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(tmp_path, "counters", None, 1, None, flush_seconds=60)
    recording.add("host_samples", [{"pid": 1}] * 3)
    recording.add("gpu_samples", [{"t_unix_ns": 1}])
    with monkeypatch.context() as disk:
        refuse(disk, "host_samples")
        with pytest.raises(OSError, match="No space left"):
            recording.close()
    (row,) = pq.read_table(recording.folder / "recordings.parquet").to_pylist()
    assert row["state"] == "open" and parts(tmp_path, "gpu_samples") == 1
    (row,) = pq.read_table(recording.close() / "recordings.parquet").to_pylist()  # the disk has space again
    assert (row["state"], row["n_rows"], row["n_lost"]) == ("complete", 4, 0)


def test_a_full_disk_beside_a_value_that_does_not_fit_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(tmp_path, "counters", None, 1, None, flush_seconds=60)
    recording.add("host_samples", [{"pid": 1}])
    recording.add("gpu_samples", [{"t_unix_ns": 10**30}])
    refuse(monkeypatch, "host_samples")
    with pytest.warns(RuntimeWarning, match="No space left"):
        recording.close_or_warn()


def test_no_error_of_writing_is_one_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of writing are not raised in the program.

    Memory runs out, first for the rows, which are lost, then for the recording's own row.
    """
    recording = Recording(tmp_path, "counters", None, 1, None, flush_seconds=60)
    recording.add("gpu_samples", [{"t_unix_ns": 1}])

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(folders.pq, "write_table", fail)
    with pytest.warns(RuntimeWarning, match="none left"):
        recording.close_or_warn()
    monkeypatch.undo()
    (row,) = pq.read_table(recording.close() / "recordings.parquet").to_pylist()
    assert (row["state"], row["n_rows"], row["n_lost"]) == ("complete", 0, 1)


def test_nobody_waits_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program does not wait for a disk that hangs.

    A separate thread of the recorder writes. Of the rows added in the meantime, the newest are kept.
    """
    monkeypatch.setattr(folders, "PART_ROWS", 2)
    monkeypatch.setattr(folders, "_MOST_PENDING", 5)
    recording = Recording(tmp_path, "counters", None, 1, None, flush_seconds=60)
    is_writing, disk_works, writers = threading.Event(), threading.Event(), set()
    write = pq.write_table

    def hang(*args: Any, **options: Any) -> None:
        writers.add(threading.get_ident())
        is_writing.set()
        disk_works.wait(1)
        write(*args, **options)

    monkeypatch.setattr(folders.pq, "write_table", hang)
    for at in range(2):
        recording.add("gpu_samples", [{"t_unix_ns": at}])
    assert is_writing.wait(10)
    for at in range(2, 12):
        recording.add("gpu_samples", [{"t_unix_ns": at}])
    assert writers == {recording.thread_ident}
    disk_works.set()
    folder = recording.close()
    paths = sorted(folder.glob("gpu_samples-*"))
    assert [row["t_unix_ns"] for path in paths for row in pq.read_table(path).to_pylist()] == [0, 1, *range(6, 12)]
    (row,) = pq.read_table(folder / "recordings.parquet").to_pylist()
    assert (row["n_rows"], row["n_lost"]) == (8, 4)


def test_many_rows_at_once_are_all_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A census of a large model adds many rows together. None of them is dropped as too old."""
    monkeypatch.setattr(folders, "_MOST_PENDING", 5)
    recording = Recording(tmp_path, "counters", None, 1, None, flush_seconds=60)
    recording.add("gpu_samples", [{"t_unix_ns": 1}] * 12)
    (row,) = pq.read_table(recording.close() / "recordings.parquet").to_pylist()
    assert (row["n_rows"], row["n_lost"]) == (12, 0)


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    recording = Recording(tmp_path, "counters", None, 1, None)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            recording.add("gpu_samples", [{"t_unix_ns": 1}])
            recording.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    (row,) = pq.read_table(recording.folder / "recordings.parquet").to_pylist()
    assert row["state"] == "open" and parts(tmp_path, "gpu_samples") == 0
    recording.close()
