"""Sweeping while other processes make and remove their own folders."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.base.whole_file import write_whole
from pipelines.lake import Lake
from pipelines.lake.commit import batches
from pipelines.lake.layout import PAGES, RETIRED, batch_files, table_of
from pipelines.readers.ingest import ingest
from tests.lake.world import write_trace

# What a publisher does with its private folder, as fast as it can, with what may lie in it.
_PUBLISHER = """
import sys, tempfile, pathlib
print("ready", flush=True)
while True:
    with tempfile.TemporaryDirectory(prefix=".analyst-", dir=sys.argv[1]) as folder:
        pathlib.Path(folder, "day=2026-01-01").mkdir()
"""


@pytest.mark.slow  # two processes; what is swept is below
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
