"""Concurrent writers, readers and a publisher: no process fails, and no reader sees a partial trace."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.names import ANALYST
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.retain.compaction import compact
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.events import EventBatch
from tests.effort import SLOW
from tests.lake.world import PROCESSES, assert_whole, capture, write_trace

N_FILES = 8 if SLOW else 4


def write_one_by_one(root: Path, files: list[Path]) -> None:
    for file in files:
        ingest([file], Lake(root))


def publish_until(root: Path, done: Any) -> None:
    while not done.is_set():
        publish(Lake(root), anew=True)


def read_until(root: Path, done: Any, reads: Any) -> None:
    while not done.is_set():
        with duckdb.connect(str(root / ANALYST), read_only=True) as con:
            assert_whole(con)
        with Lake(root).connect(["traces", "events"]) as con:
            assert_whole(con)
        with reads.get_lock():
            reads.value += 1


@pytest.mark.slow  # a loop of processes; test_crash.py kills each at its steps
def test_writers_readers_and_a_publisher(tmp_path: Path) -> None:
    files = [write_trace(tmp_path / "in" / f"rank{rank}.json", rank) for rank in range(N_FILES)]
    root = tmp_path / "lake"
    ingest([files[0]], Lake(root))
    publish(Lake(root))
    done, reads = PROCESSES.Event(), PROCESSES.Value("i", 0)
    writers = [PROCESSES.Process(target=write_one_by_one, args=(root, order)) for order in (files, files[::-1])]
    others = [PROCESSES.Process(target=publish_until, args=(root, done))]
    others += [PROCESSES.Process(target=read_until, args=(root, done, reads)) for _ in range(2)]
    for process in [*others, *writers]:
        process.start()
    for process in writers:
        process.join()
    time.sleep(0.2)
    done.set()
    for process in others:
        process.join()
    assert [process.exitcode for process in [*writers, *others]] == [0] * 5
    assert reads.value > 0
    publish(Lake(root))
    with duckdb.connect(str(root / ANALYST), read_only=True) as con:
        assert assert_whole(con) == N_FILES


def test_a_trace_that_another_process_commits_first_is_known(tmp_path: Path, monkeypatch) -> None:
    files = capture(tmp_path / "in")
    lake = Lake(tmp_path / "lake")
    original = EventBatch._merged

    def overtaken(batch: Any) -> Path:
        monkeypatch.setattr(EventBatch, "_merged", original)
        ingest(files, lake)  # another process, between our reading and our commit
        return original(batch)

    monkeypatch.setattr(EventBatch, "_merged", overtaken)
    report = ingest(files, lake)
    assert [row.status for row in report.rows] == ["known", "known", "known", "rejected"]
    assert len(lake.batches()) == len(table_files(lake.root, "events")) == 1
    with lake.connect(["traces", "events"]) as con:
        assert assert_whole(con) == 3


def test_a_batch_with_events_of_a_trace_that_is_elsewhere_is_merged_without_them(tmp_path: Path) -> None:
    files = [write_trace(tmp_path / "in" / f"{seed}.json", seed) for seed in range(2)]
    lake = Lake(tmp_path / "lake")
    with EventBatch(lake, None) as batch:
        for file in files:
            batch.add(file, None)
        ingest(files[:1], lake)  # another process, between our reading and our commit
        assert len(batch.commit()) == 1
    assert [merge.state for merge in compact(lake, older_than=0).merges] == ["merged"]
    with lake.connect(["traces", "events"]) as con:
        assert assert_whole(con) == 2
