"""The compute lock: one process computes one batch at a time, the others find the result, and a kill frees the lock."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.lake.commit.locks import held
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.dagster.tiny import write_trace


@pytest.fixture
def two(tmp_path: Path) -> tuple[Lake, Lake]:
    """Return a lake with two batches, opened twice like by two processes."""
    lake = Lake(tmp_path / "lake")
    for number, job in enumerate(("big", "small")):
        folder = tmp_path / job
        folder.mkdir()
        ingest([write_trace(folder / "rank0.json", number)], lake, job)
    return lake, Lake(tmp_path / "lake")


def is_free(root: Path) -> bool:
    with held(root, ".compute.lock", wait=False) as is_ours:
        return is_ours


def test_a_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    """A forked child does not keep the lock. It inherits the open file, but not the lock."""
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
            with mine.compute_lock(), mine.compute_lock():  # nested, as for tables of captures
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


def test_who_waited_finds_it_done(two: tuple[Lake, Lake]) -> None:
    (first, second), work = two, lambda lake, **more: materialize(lake, ["kernels"], **more)
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
