"""Tensor, pipeline and data parallelism together. The path goes through the named straggler, and clocks are correct."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.fleet.stragglers import stragglers_of
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.synthetic import Capture
from tests.fleet.many_ranks import many_ranks

TABLES = ("captures", "clock_offsets", "collectives", "straggler_ranks", "straggler_groups", "rank_steps")
PATH = ("capture_critical_path", "capture_paths")
_MOST_BYTES = 800_000_000  # 639 MB were measured in November 2026
_NOISE_NS = 1_000  # how much the ends of a collective differ


@dataclass(frozen=True)
class World:
    """A capture, and the tables computed from it."""

    capture: Capture
    con: duckdb.DuckDBPyConnection
    lake: Path
    peak: int | None = None


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("few")
    capture = many_ranks(folder / "in", 32, layers=1)
    lake = Lake(folder / "lake")
    ingest(capture.paths, lake)
    materialize_captures(lake, [*TABLES, *PATH, "capture_quality"])
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        yield World(capture, con, lake.root)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a capture whose tables are computed in a separate process."""
    folder = tmp_path_factory.mktemp("many")
    capture = many_ranks(folder / "in", 256)
    lake = Lake(folder / "lake")
    ingest(capture.paths, lake)
    command = [sys.executable, "-m", "tests.fleet.many_ranks", str(lake.root)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        yield World(capture, con, lake.root, int(ran.stdout))


def capture_id(world: World) -> str:
    return world.con.execute("SELECT capture_id FROM captures").fetchall()[0][0]


def check_clocks(world: World) -> None:
    rows = world.con.execute(
        "SELECT rank, offset_ns, error_ns, low_ns, high_ns FROM clock_offsets ORDER BY rank"
    ).fetchall()
    truth = [rank.truth.clock_offset_ns - world.capture.ranks[0].truth.clock_offset_ns for rank in world.capture.ranks]
    assert [row[0] for row in rows] == list(range(len(truth)))
    assert all(low - _NOISE_NS <= true <= high + _NOISE_NS for (*_, low, high), true in zip(rows, truth, strict=True))
    worst = max(abs(offset - true) for (_, offset, *_), true in zip(rows, truth, strict=True))
    assert worst < _NOISE_NS and max(row[2] for row in rows) < _NOISE_NS


def check_straggler(world: World) -> None:
    answer = stragglers_of(world.con, capture_id(world))
    assert answer.stragglers == [world.capture.straggler] == [answer.ranks[0]["rank"]]
    first, second = (row["root_percent"] for row in answer.ranks[:2])
    assert first > 40 and max(row["root_percent"] for row in answer.ranks[1:]) < 15, (first, second)
    assert sum(row["root_percent"] for row in answer.ranks) == pytest.approx(100)
    last = {row["rank"]: row["n_last"] for row in answer.ranks}
    assert sum(last.values()) == world.capture.n_collectives


def check_path(world: World, share_of_straggler: float) -> None:
    rows = world.con.execute(
        "SELECT rank, kind, start_ns, duration_ns, guessed FROM capture_critical_path WHERE target = 'last_gpu_end' ORDER BY seq"
    ).fetchall()
    for (_, _, start, dur, _), (_, _, following, _, _) in pairwise(rows):
        assert start + dur == following
    share: dict[int, int] = {}
    for rank, _, _, dur, guessed in rows:
        share[rank] = share.get(rank, 0) + dur
        assert not guessed
    first, second = sorted(share.values(), reverse=True)[:2]
    assert share[world.capture.straggler or 0] == first > share_of_straggler * sum(share.values())
    assert first > 3 * second


@pytest.mark.slow  # 5 s for the ranks of these; the tests of each topic have few ranks
def test_clocks_of_nested_groups(few: World) -> None:
    check_clocks(few)


@pytest.mark.slow  # 5 s for the ranks of these; the tests of each topic have few ranks
def test_the_straggler_is_named_although_its_victims_are_waited_for(few: World) -> None:
    check_straggler(few)
    caused = few.con.execute("SELECT max(caused_percent) FROM straggler_ranks").fetchall()[0][0]
    assert caused < 25  # most of the waiting is for ranks that had waited for it


@pytest.mark.slow  # 5 s for the ranks of these; the tests of each topic have few ranks
def test_the_path_goes_through_the_straggler(few: World) -> None:
    check_path(few, 0.5)


@pytest.mark.slow  # 5 s for the ranks of these; the tests of each topic have few ranks
def test_what_is_drawn_of_many_ranks(few: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = stragglers_of(few.con, capture_id(few))
    assert answer.drawn() == (answer.cells, "")
    monkeypatch.setattr("pipelines.fleet.stragglers.DRAWN", 8)
    cells, caveat = answer.drawn()
    ranks = {cell["rank"] for cell in cells}
    assert ranks == {row["rank"] for row in (*answer.ranks[:7], answer.ranks[16])}
    assert caveat == "8 of 32 ranks: those that most waiting goes back to, and the median"


@pytest.mark.slow  # 5 s for the ranks of these; the tests of each topic have few ranks
def test_long_tables_say_what_they_leave_out(few: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("pipelines.faces.cli.fleet.capture_path"), "_RANKS", 4)
    said = CliRunner().invoke(app, ["capture-path", capture_id(few), "--lake", str(few.lake)], env={"COLUMNS": "120"})
    n_on_path = few.con.execute(
        "SELECT count(DISTINCT rank) FROM capture_critical_path WHERE target = 'last_gpu_end'"
    ).fetchall()[0][0]
    assert said.exit_code == 0 and n_on_path > 4
    assert f"{n_on_path - 4} more ranks" in said.output
    said = CliRunner().invoke(app, ["stragglers", capture_id(few), "--lake", str(few.lake)], env={"COLUMNS": "160"})
    assert said.exit_code == 0 and "straggler: rank 22;" in said.output
    lines = [line.split("│")[1:3] for line in said.output.splitlines() if line.startswith("│ ")]
    roles = [role.strip() for role, _ in lines if role.strip() in ("tp", "dp", "pp")]
    assert roles == ["dp"] * 5 + ["pp"] * 5 + ["tp"] * 5


@pytest.mark.slow  # `make scale` has a thousand ranks
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_256_ranks_in_800_megabytes(many: World) -> None:
    check_clocks(many)
    check_straggler(many)
    check_path(many, 0.25)  # it is one of four stages
    assert many.peak is not None and many.peak < _MOST_BYTES
