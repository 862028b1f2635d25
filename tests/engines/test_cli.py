"""`--engine` on the command line: the output and the exit status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.engines import unit_work as work
from pipelines.engines.engine import Done
from pipelines.engines.in_process import InProcess
from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import connect
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.lake.world import write_trace


@pytest.fixture(autouse=True)
def few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    # `tables` is an argument because a module that is imported later binds this function and passes tables.
    kernels = lambda lake, tables=("kernels",), *more, **named: materialize(lake, tables, *more, **named)  # noqa: E731
    monkeypatch.setattr("pipelines.runs.materialize.per_trace.materialize", kernels)


def call(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow  # 4 s
def test_ingest_and_materialize_on_an_engine(tmp_path: Path) -> None:
    file, lake = write_trace(tmp_path / "in" / "rank0.json", 1), tmp_path / "lake"
    done = call("ingest", file, "--lake", lake, "--engine", "in-process", "--json")
    assert done.exit_code == 0, done.output
    assert [row["status"] for row in json.loads(done.stdout)] == ["ok"]
    done = call("materialize", "capture_ranks", "--lake", lake, "--engine", "in-process", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["units"], answer["failed_units"]) == (1, [])
    with connect(Lake(lake)) as con:  # the tables are published
        rows = con.execute("SELECT count(*) FROM kernels JOIN capture_ranks USING (trace_id)").fetchall()
    assert rows == [(4,)]


@pytest.mark.slow  # tests/runs/materialize tests --force without an engine
def test_force_computes_again_on_an_engine(tmp_path: Path) -> None:
    file, lake = write_trace(tmp_path / "in" / "rank0.json", 1), Lake(tmp_path / "lake")
    ingest([file], lake)
    words = ("materialize", "kernels", "capture_ranks", "--lake", lake.root, "--json")
    assert call(*words).exit_code == 0
    paths = [path for table in ("kernels", "capture_ranks") for path in lake.committed_files(table)]
    before = [path.stat().st_ino for path in paths]
    for options, is_new in (((), False), (("--force",), True)):
        done = call(*words, "--engine", "in-process", *options)
        assert done.exit_code == 0, done.output
        assert [path.stat().st_ino != inode for path, inode in zip(paths, before, strict=True)] == [is_new] * 2
    with connect(lake) as con:
        assert con.execute("SELECT count(*) FROM kernels JOIN capture_ranks USING (trace_id)").fetchall() == [(4,)]


def test_a_failed_unit_is_told_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "ingest_unit", lambda how, unit: 1 / 0)
    file = write_trace(tmp_path / "in" / "rank0.json", 1)
    done = call("ingest", file, "--lake", tmp_path / "lake", "--engine", "in-process")
    assert done.exit_code == 1
    assert "unit 00001 failed 3 times (rank0.json): ZeroDivisionError: division by zero" in done.stderr
    with Lake(tmp_path / "lake").connect(["rejects"]) as con:
        assert con.execute("SELECT path FROM rejects").fetchall() == [(str(file),)]


@pytest.mark.slow  # a failed unit is tested above
def test_a_log_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If stderr is not a terminal, there is no bar. A short run prints nothing."""
    files = [write_trace(tmp_path / "in" / f"rank{n}.json", n) for n in range(2)]
    done = call("ingest", *files, "--lake", tmp_path / "lake", "--engine", "in-process")
    assert done.exit_code == 0 and "units" not in done.stderr
    monkeypatch.setattr("pipelines.faces.cli.lake.engine.LOG_EVERY_S", 0)
    done = call("ingest", *files, "--lake", tmp_path / "lake", "--engine", "in-process")
    assert done.exit_code == 0 and "1 of 1 units" in done.stderr


@pytest.mark.slow  # a unit of files is tested above
def test_captures_that_fail_are_told_and_end_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.engines.capture_units._compute", lambda how, unit: 1 / 0)
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "in" / "rank0.json", 1)], lake)
    done = call("materialize", "capture_ranks", "--lake", lake.root, "--engine", "in-process")
    assert done.exit_code == 1
    assert "unit 00001 failed 3 times" in done.stderr and "ZeroDivisionError" in done.stderr


def test_ctrl_c_cancels_what_is_left_and_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = []

    class Interrupted(InProcess):
        def submit(self, units: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Done]:
            try:
                yield from super().submit(units, work)
                raise KeyboardInterrupt
            finally:
                cancelled.append(True)

    monkeypatch.setattr("pipelines.engines.open_engine.InProcess", Interrupted)
    file, lake = write_trace(tmp_path / "in" / "rank0.json", 1), tmp_path / "lake"
    done = call("ingest", file, "--lake", lake, "--engine", "in-process")
    assert (done.exit_code, cancelled) == (130, [True])
    assert "cancelled: units that were done are in the store; the same command does the rest" in done.stderr
    assert len(Lake(lake).known_traces()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--engine", "spork"), "unknown engine 'spork'"),
        (("--address", "x"), "--address and --store need --engine"),
        (("--store", "x"), "--address and --store need --engine"),
    ],
)
def test_wrong_words_are_told(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    for verb in (("ingest", tmp_path), ("materialize",)):
        done = call(*verb, "--lake", tmp_path / "lake", *words)
        assert done.exit_code == 2 and message in " ".join(done.stderr.split())


@pytest.mark.parametrize("engine", [(), ("--engine", "in-process")])
def test_a_lake_that_is_not_there_is_told_and_not_made(tmp_path: Path, engine: tuple[str, ...]) -> None:
    done = call("materialize", "--lake", tmp_path / "lkae", *engine)
    assert done.exit_code == 1 and "there is no lake in" in done.stderr and not (tmp_path / "lkae").exists()


def test_a_store_that_cannot_be_opened_is_told_before_anything_is_submitted(tmp_path: Path) -> None:
    done = call("ingest", tmp_path, "--engine", "in-process", "--store", "ducklake:nowhere:x")
    assert done.exit_code == 1
    assert "ducklake:nowhere:x: not the address of a DuckLake" in " ".join(done.stderr.split())


@pytest.mark.slow  # 2 s; tests/faces/cli/test_user_tables.py tests prices in a lake
def test_prices_and_roles_are_given_to_a_lake(tmp_path: Path) -> None:
    lake, prices, roles = tmp_path / "lake", tmp_path / "costs.csv", tmp_path / "who.csv"
    ingest([write_trace(tmp_path / "in" / "rank0.json", 1)], Lake(lake))
    prices.write_text("job,team,price_per_gpu_hour,currency\na,x,cheap,EUR\n")
    roles.write_text("rank,role,group\n0,tp,first\n")
    done = call("materialize", "kernels", "--lake", lake, "--prices", prices, "--roles", roles)
    assert done.exit_code == 1 and "costs.csv:2: price 'cheap'" in done.stderr
    assert not (lake / "prices.csv").exists() and not (lake / "roles.csv").exists()
    prices.write_text("job,team,price_per_gpu_hour,currency\na,x,2.50,EUR\n")
    done = call("materialize", "kernels", "--lake", lake, "--prices", prices, "--roles", roles)
    assert done.exit_code == 0, done.output
    assert (lake / "prices.csv").read_text() == prices.read_text() and (lake / "roles.csv").exists()
    with connect(Lake(lake)) as con:
        assert con.execute("SELECT job, price_per_gpu_hour FROM job_prices").fetchall() == [("a", "2.50")]
