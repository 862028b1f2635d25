"""One process computes at a time, a batch at a time: who waited finds it done, and a killed one keeps nobody out."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import note
from pipelines.lake.commit.locks import held
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.computed_tables import COMPUTED
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from tests.dagster.tiny import write_trace
from tests.lake.world import PROCESSES


@pytest.fixture
def two(tmp_path: Path) -> tuple[Lake, Lake]:
    """One lake with two batches, opened twice: as by two processes."""
    lake = Lake(tmp_path / "lake")
    for number, job in enumerate(("big", "small")):
        folder = tmp_path / job
        folder.mkdir()
        ingest([write_trace(folder / "rank0.json", number)], lake, job)
    return lake, Lake(tmp_path / "lake")


def hold(root: Path, has_it: Any) -> None:
    """In a process of its own, until that is killed."""
    with Lake(root).compute_lock():
        has_it.set()
        signal.pause()


def is_free(root: Path) -> bool:
    with held(root, ".compute.lock", wait=False) as is_ours:
        return is_ours


@pytest.mark.slow  # processes that are killed with locks are in tests/lake/test_crash.py
def test_a_killed_process_frees_it(tmp_path: Path) -> None:
    has_it = PROCESSES.Event()
    holder = PROCESSES.Process(target=hold, args=(tmp_path, has_it))
    holder.start()
    assert has_it.wait(60)
    assert not is_free(tmp_path)
    holder.kill()
    holder.join()
    assert is_free(tmp_path)


def test_a_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    """It has the locked file open, and no lock itself."""
    read, write = os.pipe()
    with Lake(tmp_path).compute_lock():
        child = os.fork()
        if not child:
            os.read(read, 1)
            os._exit(0)
    try:
        assert is_free(tmp_path)
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)


def test_of_many_that_wait_one_at_a_time_has_it(tmp_path: Path) -> None:
    having, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal having, most
        for _ in range(40):
            mine = Lake(tmp_path)
            with mine.compute_lock(), mine.compute_lock():  # nested, as tables of captures compute those of traces
                with lock:
                    having += 1
                    most = max(most, having)
                with lock:
                    having -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most, having) == (1, 0)


def test_who_has_many_batches_to_do_does_not_keep_out_who_has_one(tmp_path: Path) -> None:
    mine, other = Lake(tmp_path), Lake(tmp_path)
    waits, turns = threading.Event(), list[str]()

    def take_turn() -> None:
        with other.compute_lock(waits.set):
            turns.append("other")

    thread = threading.Thread(target=take_turn)
    for _ in range(5):
        with mine.compute_lock():
            turns.append("mine")
            if len(turns) == 1:
                thread.start()
                assert waits.wait(60)
    thread.join()
    assert turns == ["mine", "other", *["mine"] * 4]


@pytest.mark.parametrize(
    "work",
    [
        lambda lake, **more: materialize(lake, ["kernels"], **more),
        pytest.param(
            lambda lake, **more: materialize_captures(lake, ["captures"], **more),
            marks=pytest.mark.slow,  # as tables of traces
        ),
    ],
)
def test_who_waited_finds_it_done(two: tuple[Lake, Lake], work: Callable[..., list]) -> None:
    first, second = two
    waits, said, results = threading.Event(), list[str](), list[Any]()
    thread = threading.Thread(
        target=lambda: results.append(work(second, on_step=lambda text: (said.append(text), waits.set())))
    )
    with first.compute_lock():
        thread.start()
        assert waits.wait(60)
        assert work(first)
    thread.join()
    assert (results, set(said)) == ([[]], {"another process computes tables, waiting"})


@pytest.mark.slow  # tests/faces/cli/test_read_only.py
def test_a_run_with_nothing_to_do_needs_no_lake_that_it_can_write(
    two: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    materialize_captures(first, ["captures"])
    note(first.root, COMPUTED, None)
    (first.root / ".compute.lock").unlink()
    (first.root / ".compute.lock").mkdir()  # a lock would fail; root may write where others may not
    monkeypatch.setattr("pipelines.lake.lake.os.access", lambda *_: False)
    assert materialize_captures(second, ["captures"]) == []
