"""Units on the in-process engine. They produce the same tables as one process, however often a unit is done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.base import database
from pipelines.base.extras import MissingExtra
from pipelines.engines import private_lake as private_lake_module
from pipelines.engines import unit_work as work
from pipelines.engines.engine import ATTEMPTS, Done
from pipelines.engines.in_process import InProcess
from pipelines.engines.open_engine import open_engine
from pipelines.engines.private_lake import SCRATCH, Setting, private_lake, sweep
from pipelines.engines.run import Followed, ingest_on, materialize_on
from pipelines.engines.worker_share import cores, memory, take_share
from pipelines.lake import Lake
from pipelines.readers.ingest import expand, ingest
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store import StoreError
from pipelines.synthetic import CaptureSpec, write_capture
from tests.engines.same import differences, stored_tables
from tests.lake.world import write_trace


class Twice(InProcess):
    """An engine that does every unit twice, like an engine whose worker died after its commit."""

    def submit(self, units: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Done]:
        for unit in units:
            list(super().submit([unit], work))
            yield from super().submit([unit], work)


class Deadly(InProcess):
    """An engine whose workers die of a unit with a file of this name.

    Units submitted together with such a unit count as killed, as on a cluster that cannot tell which unit killed the
    worker.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, units: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Done]:
        if not any(path.name == self.name for unit in units for path in unit.items):
            yield from super().submit(units, work)
            return
        for unit in units:
            yield Done(unit, error="WorkerDied: killed", attempts=ATTEMPTS, is_death=True)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a capture of two ranks, a file that is not a trace, and a trace with a copy."""
    folder = tmp_path_factory.mktemp("traces")
    write_capture(CaptureSpec(seed=1, ranks=2, steps=1, layers=1, ops_per_layer=1), folder / "job1")
    (folder / "job1" / "broken.json").write_text("no trace at all")
    # With a date, because a capture without a date begins when it is ingested.
    write_trace(folder / "copies" / "rank0.json", 5, baseTimeNanoseconds=1_700_000_000_000_000_000)
    (folder / "more").mkdir()
    (folder / "more" / "rank0.json").write_bytes((folder / "copies" / "rank0.json").read_bytes())
    return folder


def files_of(folder: Path) -> list[Path]:
    return [path for path in expand([folder]) if path.name != "truth.json"]


@pytest.fixture(scope="module")
def reference(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return the lake that one process computes from `traces`."""
    lake = Lake(tmp_path_factory.mktemp("reference") / "lake")
    ingest(files_of(traces), lake)
    materialize_all(lake)
    return lake


@pytest.fixture
def few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let units compute only one table, because the tests of this fixture check other things."""
    # `tables` is an argument because a module that is imported later binds this function and passes tables.
    kernels = lambda lake, tables=("kernels",), *more, **named: materialize(lake, tables, *more, **named)  # noqa: E731
    monkeypatch.setattr("pipelines.runs.materialize.per_trace.materialize", kernels)


@pytest.fixture(autouse=True)
def own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv(SCRATCH, str(scratch))
    yield scratch
    assert list(scratch.iterdir()) == []  # no private lake remains


def statuses(run: Followed) -> list[tuple[str, str]]:
    return sorted((Path(row.path).name, row.status) for row in run.rows)


@pytest.mark.slow  # test_cli.py tests files and tables on an engine
def test_units_done_twice_make_the_tables_of_one_process(
    traces: Path, reference: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr("pipelines.engines.run.UNIT_FILES", 2)
    run = ingest_on(Twice(), str(lake.root), files_of(traces), on_unit=lambda f, _: seen.append((f.n_done, f.n_units)))
    assert run.failed == []
    assert seen == [(n, run.n_units) for n in range(1, run.n_units + 1)] and run.n_units >= 3
    assert run.size_done == run.size > 0
    assert [row.status for row in run.rows if "broken" in row.path] == ["rejected"]
    captures = materialize_on(Twice(), str(lake.root))
    assert captures.failed == [] and captures.n_done == captures.n_units > 0
    with lake.connect(stored_tables()) as con, reference.connect(stored_tables()) as reference_con:
        wrong, n_tables, n_rows = differences(con, reference_con)
        n_traces = reference_con.execute("SELECT count(*) FROM traces").fetchall()[0][0]
    assert wrong == [] and n_tables > 60 and n_rows > 500 and n_traces == 3
    again = materialize_on(InProcess(), str(lake.root))
    assert again.n_units == 0  # everything is up to date


@pytest.mark.usefixtures("few_models")
def test_what_is_there_already_is_not_modelled_again(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, files = str(tmp_path / "lake"), [traces / "copies" / "rank0.json"]
    assert statuses(ingest_on(InProcess(), lake, files)) == [("rank0.json", "ok")]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the models of a known trace ran")

    monkeypatch.setattr("pipelines.runs.materialize.per_trace.materialize", never)
    run = ingest_on(InProcess(), lake, files)
    assert statuses(run) == [("rank0.json", "known")] and run.failed == []


@pytest.mark.slow  # failing units are tested below, halves in test_units.py
@pytest.mark.usefixtures("few_models")
def test_only_the_file_that_kills_its_worker_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write_trace(tmp_path / "in" / f"rank{n}.json", n) for n in range(5)]
    lake = Lake(tmp_path / "lake")
    monkeypatch.setattr("pipelines.engines.run.UNIT_FILES", 3)
    run = ingest_on(Deadly("rank3.json"), str(lake.root), files)
    assert [(failure.items, failure.attempts) for failure in run.failed] == [((str(files[3]),), ATTEMPTS)]
    assert run.n_done == run.n_units and run.size_done == run.size
    assert statuses(run) == [(f"rank{n}.json", "rejected" if n == 3 else "ok") for n in range(5)]
    with lake.connect(["traces", "rejects"]) as con:
        assert con.execute("SELECT count(*) FROM traces").fetchall() == [(4,)]
        ((path, reason),) = con.execute("SELECT path, reason FROM rejects").fetchall()
    assert path == str(files[3])
    assert reason == f"the unit that it was in failed {ATTEMPTS} times; ingest it again. WorkerDied: killed"


@pytest.mark.usefixtures("few_models")
def test_the_lakes_own_files_are_no_input(traces: Path, tmp_path: Path) -> None:
    lake = tmp_path / "data" / "lake"
    lake.mkdir(parents=True)
    file = Path(shutil.copy(traces / "copies" / "rank0.json", tmp_path / "data"))
    for status in ("ok", "known"):
        run = ingest_on(InProcess(), str(lake), expand([tmp_path / "data"]))
        assert statuses(run) == [(file.name, status)]
    assert len(expand([tmp_path / "data"])) > 2 and not Lake(lake).committed_files("rejects")


@pytest.mark.usefixtures("few_models")
def test_trouble_with_the_store_fails_the_unit_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_trace(tmp_path / "rank0.json", 1)
    tried = []

    def sometimes(address: str) -> Any:
        from pipelines.runs.store.folder import FolderStore

        tried.append(address)
        if len(tried) < ATTEMPTS:
            raise OSError("the network is away")
        return FolderStore(address)

    monkeypatch.setattr("pipelines.runs.store.open_store", sometimes)
    run = ingest_on(InProcess(), str(tmp_path / "lake"), [file])
    assert statuses(run) == [("rank0.json", "ok")] and len(tried) == ATTEMPTS

    monkeypatch.setattr(work, "ingest_unit", lambda how, unit: 1 / 0)
    run = ingest_on(InProcess(), str(tmp_path / "lake"), [file])
    (failed,) = run.failed
    assert (failed.items, failed.attempts) == ((str(file),), ATTEMPTS)
    assert failed.error == "ZeroDivisionError: division by zero"
    with Lake(tmp_path / "lake").connect(["rejects"]) as con:
        assert con.execute("SELECT path FROM rejects").fetchall() == [(str(file),)]


@pytest.mark.slow  # tests/fleet/test_growth.py tests late ranks without an engine
@pytest.mark.usefixtures("few_models")
def test_a_capture_is_computed_again_when_a_late_rank_arrives(traces: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ranks = sorted(path for path in files_of(traces / "job1") if "rank" in path.name)
    for n in (1, 2):
        ingest_on(InProcess(), str(lake.root), ranks[:n])
        assert materialize_on(InProcess(), str(lake.root), ["capture_ranks"]).n_units == 1
        assert materialize_on(InProcess(), str(lake.root), ["capture_ranks"]).n_units == 0
        with lake.connect(["captures", "capture_ranks"]) as con:
            assert con.execute("SELECT n_ranks FROM captures").fetchall() == [(n,)]
            assert len(con.execute("SELECT rank FROM capture_ranks").fetchall()) == n
    more = materialize_on(InProcess(), str(lake.root), ["capture_quality"])  # a table that was not requested before
    # a unit for the inputs of each of two batches, and one for the capture's table
    assert (more.n_units, more.failed) == (3, [])
    with lake.connect(["capture_quality", "capture_ranks"]) as con:
        assert len(con.execute("SELECT rank FROM capture_ranks").fetchall()) == 2
        con.execute("FROM capture_quality")


def test_tables_that_are_missing_are_computed_in_the_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "in" / "rank0.json", 1)], lake)
    run = materialize_on(InProcess(), str(lake.root), ["kernels"])
    assert run.failed == [] and [result.n_files for result in run.results] == [1]
    with lake.connect(["kernels"]) as con:
        assert con.execute("SELECT count(*) FROM kernels").fetchall() == [(4,)]
    assert materialize_on(InProcess(), str(lake.root), ["kernels"]).n_units == 0


def test_a_worker_has_its_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (database.THREADS, database.MEMORY):
        monkeypatch.setenv(name, "")  # so that monkeypatch removes the variable that the test sets
        monkeypatch.delenv(name)
    with database.connect() as con:
        assert con.execute("SELECT current_setting('threads')").fetchall() == [(os.cpu_count(),)]
    assert database.at_most(2) == "1907MiB" and database.threads(3) == 3
    take_share(1)
    share = int(os.environ[database.MEMORY])
    assert 256 <= share <= max(256, (memory() >> 20) // cores())
    with database.connect() as con:
        assert con.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    monkeypatch.setenv(database.MEMORY, "512")
    assert database.at_most(2) == "512MiB" and database.threads(3) == 1
    with database.connect() as con:
        assert con.execute("SELECT current_setting('memory_limit')").fetchall() == [("512.0 MiB",)]
    with database.connect(config={"threads": 2, "memory_limit": "1GB"}) as con:  # explicit settings are kept
        assert con.execute("SELECT current_setting('threads')").fetchall() == [(2,)]


def test_lakes_of_killed_workers_are_removed(own_scratch: Path) -> None:
    dead = own_scratch / f"tracelake-unit@{os.uname().nodename}:999999999:1@x"
    other = own_scratch / "tracelake-unit@another-host:1:1@x"
    for folder in (dead, other):
        (folder / "lake").mkdir(parents=True)
    with private_lake(Setting("anywhere")) as lake:
        assert lake.root.parent.parent == own_scratch
        assert not dead.exists() and other.exists()  # processes of another host cannot be checked
        assert sweep(own_scratch) == []  # this process is alive
    other.joinpath("lake").rmdir()
    other.rmdir()


def test_patterns_and_limits_of_who_submits_apply_to_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_RANK_PATTERN", r"r(\d+)")
    setting = Setting.here("ducklake:postgres:x", 1)
    assert setting.environment["TRACELAKE_RANK_PATTERN"] == r"r(\d+)" and SCRATCH not in setting.environment
    assert setting.store == "ducklake:postgres:x"
    assert Setting.here("lake", 1).store == str(Path("lake").absolute())


def test_no_worker_writes_into_a_folder_of_the_same_name_elsewhere(tmp_path: Path) -> None:
    setting = Setting.here(str(tmp_path / "lake"), None)
    with private_lake(setting):
        pass
    (tmp_path / "lake").rename(tmp_path / "away")
    for is_there in (False, True):
        if is_there:
            (tmp_path / "lake").mkdir()
        with (
            pytest.raises(StoreError, match="a lake in a folder accepts only workers on the same machine"),
            private_lake(setting),
        ):
            pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux")
def test_the_top_folders_of_two_disks_are_not_one_folder() -> None:
    assert Path("/proc").stat().st_ino == Path("/sys").stat().st_ino  # as with the volumes of two containers
    assert private_lake_module._home(Path("/proc")) != private_lake_module._home(Path("/sys"))


def test_an_engine_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown engine 'spork'; choose one of in-process, ray"):
        open_engine("spork")
    monkeypatch.setattr("pipelines.base.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"--engine ray needs ray, .* -m pip install -e '/.*\[ray\]'$"):
        open_engine("ray")
    assert open_engine("in-process").slots == 1
