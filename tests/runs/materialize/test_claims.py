"""A batch is computed by one process: others wait for it or leave it alone, and a killed one frees it."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pipelines.runs.materialize.per_trace as per_trace
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import note, record_of
from pipelines.lake.commit.claims import FOLDER, Claims
from pipelines.lake.layout import Batch
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.computed_tables import COMPUTED
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.materialize.publishing import Materialized
from tests.dagster.tiny import write_trace

ROOT = Path(__file__).resolve().parents[3]
_HOLDER = "import sys; from pipelines.lake import Lake; lake = Lake(sys.argv[1]); lake.claims.keep('b'); print('has it', flush=True); sys.stdin.read()"


@pytest.fixture
def two(tmp_path: Path) -> tuple[Lake, Lake]:
    """One lake with two batches, opened twice: as by two processes."""
    lake = Lake(tmp_path / "lake")
    for number, job in enumerate(("big", "small")):
        folder = tmp_path / job
        folder.mkdir()
        ingest([write_trace(folder / "rank0.json", number)], lake, job)
    return lake, Lake(tmp_path / "lake")


def computed(lake: Lake, table: str) -> list[Batch]:
    return sorted(Batch(path.stem) for path in lake.committed_files(table))


def test_a_killed_process_frees_its_claim(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout and holder.stdout.readline() == "has it\n"
    claims = Claims(tmp_path)
    with claims.on("b", wait=False) as is_ours:
        assert not is_ours
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / FOLDER / "b").exists()
    with claims.on("b", wait=False) as is_ours:
        assert is_ours and not claims.is_kept("b")
    assert not list((tmp_path / FOLDER).iterdir())


def test_of_many_that_wait_one_at_a_time_has_it(tmp_path: Path) -> None:
    having, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal having, most
        for _ in range(40):
            with Claims(tmp_path).on("b") as is_ours:
                assert is_ours
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


def test_who_waited_has_it_and_not_only_a_file_that_was_removed(tmp_path: Path) -> None:
    first, second, third = Claims(tmp_path), Claims(tmp_path), Claims(tmp_path)
    first.keep("b")
    waits, has_it, ends = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        with second.on("b", on_wait=waits.set):
            has_it.set()
            ends.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(60)
    time.sleep(0.2)  # until it waits for the lock of the file that is removed next
    first.release()
    assert has_it.wait(60)
    with third.on("b", wait=False) as is_ours:
        assert not is_ours
    ends.set()
    thread.join()


def test_a_kept_claim_is_ones_own_and_ends_when_it_is_released(tmp_path: Path) -> None:
    mine, other = Claims(tmp_path), Claims(tmp_path)
    mine.keep("b")
    with mine.on("b", wait=False) as is_ours:
        assert is_ours
    with other.on("b", wait=False) as is_ours:
        assert not is_ours
    mine.release()
    with other.on("b", wait=False) as is_ours:
        assert is_ours


def test_a_released_claim_is_free_though_a_forked_child_has_its_file_open(tmp_path: Path) -> None:
    mine, other = Claims(tmp_path), Claims(tmp_path)
    mine.keep("b")
    path = tmp_path / FOLDER / "b"
    os.link(path, tmp_path / "same file")  # what who waits for it has open
    in_child = os.dup(mine._kept["b"].fileno())
    try:
        mine.release()
        with (tmp_path / "same file").open() as waiting:
            fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with other.on("b", wait=False) as is_ours:
            assert is_ours
    finally:
        os.close(in_child)


@pytest.mark.slow  # tests/faces/cli/test_read_only.py
def test_a_run_with_nothing_to_do_needs_no_lake_that_it_can_write(
    two: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    materialize_captures(first, ["captures"])
    note(first.root, COMPUTED, None)
    (first.root / FOLDER).rmdir()
    (first.root / FOLDER).touch()  # a claim would fail; root may write where others may not
    monkeypatch.setattr("pipelines.lake.commit.claims.os.access", lambda *_: False)
    assert materialize_captures(second, ["captures"]) == []


def test_what_another_works_on_is_left_to_it(two: tuple[Lake, Lake]) -> None:
    first, second = two
    big, small = first.batches()
    first.claims.keep(big.batch_id)
    left: list[Batch] = []
    materialize(second, ["kernels"], second.batches(), left=left)
    assert (left, computed(second, "kernels")) == ([big], [small])
    left.clear()
    materialize_captures(second, ["collective_groups"], left=left)
    assert set(left) == {big}
    assert len(_captures(second)) == 1
    assert record_of(second.root, COMPUTED) is None  # it is not complete
    first.claims.release()
    materialize_captures(second, ["collective_groups"], left=(left := []))
    assert left == [] and len(_captures(second)) == 2


def test_what_another_computes_a_part_of_is_waited_for(two: tuple[Lake, Lake]) -> None:
    """Such as a query that needs one table: nobody else would compute the others."""
    first, second = two
    big, small = first.batches()
    for_a_while = first.claims.on(big.batch_id)
    assert for_a_while.__enter__() and not second.claims.is_kept(big.batch_id)
    left: list[Batch] = []
    with Said(lambda: for_a_while.__exit__(None, None, None), first) as said:
        materialize(second, ["kernels"], left=left, on_step=said)
    assert "waiting" in said.texts[0]
    assert (left, computed(second, "kernels")) == ([], [big, small])


@pytest.mark.slow  # what was kept is above
def test_what_another_run_works_on_is_left_to_it_though_it_was_not_kept(
    two: tuple[Lake, Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a run that takes in nothing itself."""
    first, second = two
    compute, left = per_trace._compute_batch, list[Batch]()

    def meanwhile(lake: Lake, work: per_trace._Work) -> list[Materialized]:
        monkeypatch.setattr(per_trace, "_compute_batch", compute)
        materialize(second, ["kernels"], left=left)
        return compute(lake, work)

    monkeypatch.setattr(per_trace, "_compute_batch", meanwhile)
    materialize(first, ["kernels"], left=[])
    assert left == first.batches()[:1]
    assert computed(second, "kernels") == first.batches()


def _captures(lake: Lake) -> list[tuple]:
    with lake.connect(["captures"]) as con:
        return con.execute("SELECT capture_id FROM captures").fetchall()


def test_a_run_has_what_it_takes_in_before_others_see_it(tmp_path: Path) -> None:
    mine, other = Lake(tmp_path / "lake"), Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "rank0.json")], mine, claim=True)
    materialize(other, ["kernels"], left=(left := []))
    assert left == mine.batches()
    assert [one.table for one in materialize(mine, ["kernels"], left=[])] == ["kernels"]


def test_who_needs_it_waits_and_does_not_compute_it_again(two: tuple[Lake, Lake]) -> None:
    first, second = two
    first.claims.keep(first.batches()[0].batch_id)
    with Said(lambda: materialize(first, ["kernels"]), first) as said:
        assert materialize(second, ["kernels"], on_step=said) == []
    assert len(said.texts) == 1 and said.texts[0].endswith("another process does it, waiting")
    assert computed(second, "kernels") == first.batches()


@pytest.mark.slow  # one process at a time computes a batch, above
def test_one_process_at_a_time_computes_captures(two: tuple[Lake, Lake]) -> None:
    first, second = two
    first.claims.keep("captures")
    with Said(lambda: materialize_captures(first, ["captures"]), first) as said:
        assert materialize_captures(second, ["captures"], on_step=said) == []
    assert said.texts == ["captures: another process does it, waiting"]


class Said:
    """Notes what is said; once that is of waiting, does the work in another thread, and releases the claims."""

    def __init__(self, work: Callable[[], object], lake: Lake) -> None:
        self.texts: list[str] = []
        self.thread = threading.Thread(target=lambda: (work(), lake.claims.release()))

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        if "waiting" in text:
            self.thread.start()

    def __enter__(self) -> "Said":
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join()


def _holding(root: Path, *names: str) -> subprocess.Popen[str]:
    """A process that has claimed these names."""
    code = _HOLDER.replace("lake.claims.keep('b')", "[lake.claims.keep(name) for name in sys.argv[2:]]")
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(root), *names],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout and holder.stdout.readline() == "has it\n"
    return holder


def test_sweeping_removes_the_claims_of_killed_processes_and_no_others(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert lake.sweep() == [] and not (tmp_path / FOLDER).exists()
    dead, alive = _holding(tmp_path, "a", "b"), _holding(tmp_path, "c")
    assert lake.sweep() == []
    lake.claims.keep("d")
    dead.kill()
    dead.wait()
    (tmp_path / FOLDER / "e").touch()  # left between making the file and locking it
    assert [path.name for path in lake.sweep()] == ["a", "b", "e"]
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["c", "d"]
    for name, is_free in (("a", True), ("c", False), ("d", False)):
        with Claims(tmp_path).on(name, wait=False) as is_ours:
            assert is_ours == is_free, name
    alive.kill()
    alive.wait()


_SWEEPER = "import sys; from pipelines.lake.commit.claims import Claims; print('ready', flush=True)\nwhile True: Claims(Path(sys.argv[1])).sweep()"


@pytest.mark.slow  # 3,000 times; sweeping is above
def test_a_claim_is_never_refused_or_lost_because_of_a_sweeper(tmp_path: Path) -> None:
    """While another process does nothing but sweep, every free claim is had at once, and by one at a time."""
    Claims(tmp_path).keep("other")  # so that there is a folder to sweep
    sweeper = subprocess.Popen(
        [sys.executable, "-c", f"from pathlib import Path; {_SWEEPER}", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert sweeper.stdout and sweeper.stdout.readline() == "ready\n"
        one, other = Claims(tmp_path), Claims(tmp_path)
        for number in range(3000):
            (tmp_path / FOLDER / "b").touch()  # as a killed process leaves it: the sweeper is after it
            with one.on("b", wait=False) as is_ours:
                assert is_ours, number
                assert (tmp_path / FOLDER / "b").exists(), number
                with other.on("b", wait=False) as is_theirs:
                    assert not is_theirs, number
        assert sweeper.poll() is None
    finally:
        sweeper.kill()
        sweeper.wait()
