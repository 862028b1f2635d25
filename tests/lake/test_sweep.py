"""Sweeping while other processes create and remove their own folders."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.base import processes
from pipelines.base.processes import is_running_here, owner_mark
from pipelines.base.whole_file import write_whole
from pipelines.lake import Batch, Lake
from pipelines.lake.commit import batches
from pipelines.lake.names import PAGES, RETIRED, STAGING, batch_files, table_of
from pipelines.readers.ingest import ingest
from tests.lake.world import write_trace

# Creates and removes a publisher's private folder and its content, as fast as possible.
_PUBLISHER = """
import sys, tempfile, pathlib
print("ready", flush=True)
while True:
    with tempfile.TemporaryDirectory(prefix=".analyst-", dir=sys.argv[1]) as folder:
        pathlib.Path(folder, "day=2026-01-01").mkdir()
"""


@pytest.mark.slow  # two processes; tests below check which files are swept
def test_sweeping_among_publishers(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    command = [sys.executable, "-c", _PUBLISHER, str(tmp_path)]
    publishers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for publisher in publishers:
            assert publisher.stdout and publisher.stdout.readline()
        for _ in range(500):
            assert lake.sweep() == []
    finally:
        for publisher in publishers:
            publisher.kill()
            publisher.communicate()


def test_events_that_a_killed_run_left_beside_its_rejects_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    none = tmp_path / "none.json"
    none.write_text("no trace at all")

    def killed(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(batches, "derive", killed)
        ingest([write_trace(tmp_path / "0.json", 0), none], lake)
    assert {table_of(path) for path in batch_files(lake.root)} == {"events", "rejects"}
    assert lake.sweep() == []
    for path in batch_files(lake.root):
        os.utime(path, (0, 0))
    assert [table_of(path) for path in lake.sweep()] == ["events"]
    assert [table_of(path) for path in batch_files(lake.root)] == ["rejects"] and not lake.broken()


def test_files_of_batches_are_those_of_tables(tmp_path: Path) -> None:
    shown = tmp_path / "kernels" / "day=2026-01-01" / "one.parquet"
    hidden = tmp_path / ".analyst-x" / "day=2026-01-01" / "one.parquet"
    for path in (shown, hidden):
        path.parent.mkdir(parents=True)
        path.touch()
    assert batch_files(tmp_path) == batch_files(tmp_path, "one") == [shown]
    assert batch_files(tmp_path, "two") == []


@pytest.mark.parametrize("folder", [".", RETIRED, PAGES])
def test_half_written_files_are_swept_after_a_day(tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / folder / "one.json"
    path.parent.mkdir(exist_ok=True)
    with monkeypatch.context() as killed, pytest.raises(TypeError):
        killed.setattr("os.replace", None)
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        write_whole(path, "{}")
    (part,) = path.parent.iterdir()
    assert Lake(tmp_path).sweep() == []
    os.utime(part, (time.time() - 86_300,) * 2)
    assert Lake(tmp_path).sweep() == []
    os.utime(part, (time.time() - 86_500,) * 2)
    assert Lake(tmp_path).sweep() == [part] and not part.exists()


_DAY = 24 * 3600
_NO_PID = 999_999_999
"""Larger than any pid of Linux."""


@pytest.mark.parametrize("by_commit", [True, False])
def test_what_a_killed_run_staged_goes_with_the_next_commit(tmp_path: Path, by_commit: bool) -> None:
    lake = Lake(tmp_path)
    mine = lake.staging(Batch.new())
    staged = tmp_path / STAGING / mine.name.replace(f":{os.getpid()}:", f":{_NO_PID}:")
    staged.mkdir()
    (staged / "events.parquet").touch()
    if by_commit:  # each commit begins with a separate folder
        assert lake.staging(Batch.new()).exists()
    else:
        assert lake.sweep() == [staged]
    assert not staged.exists() and mine.exists()


def test_a_staging_folder_goes_with_its_last_folder(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    staging = lake.staging(Batch.new())
    for name in ("first", "last"):
        (staging / name).mkdir()
        (staging / name / "events.parquet").touch()
    lake.unstage(staging / "first")
    assert [path.name for path in staging.iterdir()] == ["last"]
    lake.unstage(staging / "last")
    assert not staging.exists()


def test_the_folder_of_a_running_process_stays_and_an_unknown_one_goes_after_a_day(tmp_path: Path) -> None:
    """The folder of a running process stays, and that of an unknown process is swept after a day.

    A process is unknown, and may still run, if its pid cannot be checked here. The pid belongs to another host, to
    another container with this host's name, or is not recorded.
    """
    process, _, namespace = owner_mark().rpartition("@")
    _, _, start = process.rpartition(":")
    elsewhere = ("@another-host:1:5@" + namespace, f"@{process}0@{namespace}0", "@a", "")
    lake, batch = Lake(tmp_path), Batch.new()
    mine, unknown = lake.staging(batch), [tmp_path / STAGING / f"{batch.batch_id}{mark}" for mark in elsewhere]
    for folder in unknown:
        folder.mkdir()
    for age, expected in ((_DAY - 60, []), (_DAY + 60, unknown)):
        for folder in (mine, *unknown):
            os.utime(folder, (time.time() - age,) * 2)
        assert sorted(lake.sweep()) == sorted(expected)
    assert [*tmp_path.glob(f"{STAGING}/*")] == [mine] == [lake.staging(batch)]
    reused = tmp_path / STAGING / mine.name.replace(f":{start}@", f":{start}0@")  # another process got the pid
    reused.mkdir()
    assert lake.sweep() == [reused]


def test_owners_that_cannot_be_seen_are_neither_running_nor_ended() -> None:
    process, _, namespace = owner_mark().rpartition("@")
    assert is_running_here(owner_mark()) is True and is_running_here(f"{process}0@{namespace}") is False
    assert [is_running_here(mark) for mark in ("", "@", "a:b@", f"h:1:2@{namespace}", process)] == [None] * 5


def test_a_process_of_another_machine_with_this_host_s_name_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of another machine that has this host's name cannot be checked here.

    Every machine gives its first PID namespace the same number, so only the boot id identifies the machine.
    """
    process, _, namespace = owner_mark().rpartition("@")
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("another\n")
    monkeypatch.setattr(processes, "_BOOT", boot_id)
    assert is_running_here(owner_mark()) is True
    assert is_running_here(f"{process}0@{namespace}") is None
