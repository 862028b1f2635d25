"""Captures that grow, are killed and are recomputed, compared with the truth of a simulation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.lake import Staged
from pipelines.lake.names import CAPTURE_MARK, CAPTURE_TABLES, Batch, batch_of, table_file
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize import per_capture
from pipelines.runs.materialize.per_capture import compute_captures, materialize_captures, stale_captures
from pipelines.runs.materialize.publishing import Materialized
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.lake.world import kept, killed, shown, write_trace

TABLES = [
    *("captures", "capture_ranks", "capture_quality", "capture_roles", "collective_groups", "collectives"),
    *("collective_ranks", "clock_offsets", "straggler_ranks", "straggler_groups", "rank_steps"),
]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    spec = CaptureSpec(ranks=4, steps=3, straggler=2, clock_offset_ns=(0, 30_000, -45_000, 12_345), seed=4)
    return write_capture(spec, tmp_path_factory.mktemp("in"))


@pytest.fixture(scope="module")
def whole(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a lake of the capture whose tables are computed."""
    folder = tmp_path_factory.mktemp("whole")
    ingest(capture.paths, Lake(folder / "lake"))
    materialize_all(Lake(folder / "lake"), TABLES)
    return folder


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    with kept(whole) as lake:
        yield lake


KILLED = ["captures", "capture_ranks", "clock_offsets", "collectives", "collective_ranks"]


def do_materialize(root: Path) -> None:
    materialize_captures(Lake(root), KILLED)


def ask(lake: Lake, query: str) -> list[tuple]:
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        return con.execute(query).fetchall()


def test_every_table_of_captures_is_known_to_the_lake() -> None:
    assert sorted(CAPTURE_TABLES) == sorted(load_catalog().of_captures)


def test_a_run_that_fails_keeps_the_rows_of_the_capture_that_grew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails keeps the rows of a capture that grew.

    Its table `capture_ranks` is outdated. The table's file has the rows of two captures, one of which grew.
    """

    def rank(job: str, number: int) -> Path:
        return write_trace(tmp_path / job / f"{number}.json", 10 * ord(job) + number, distributedInfo={"rank": number})

    lake = Lake(tmp_path / "lake")
    ingest([rank("a", 0), rank("b", 0)], lake)
    list(compute_captures(lake, ["capture_ranks"]))
    before = shown(lake, ["capture_ranks"])["capture_ranks"]
    (batch,) = lake.batches(CAPTURE_MARK)
    copy = shutil.copy(table_file(lake.root, "capture_ranks", batch), lake.staging(batch))
    lake.put_all(batch, {"capture_ranks": Staged(Path(copy), version="older")})
    ingest([rank("b", 1)], lake)
    compute = per_capture._compute

    def fails(lake: Lake, catalog: Catalog, to: Batch, *more: Any) -> list[Materialized]:
        if to == batch:
            return compute(lake, catalog, to, *more)
        raise duckdb.OutOfMemoryException("too large")

    monkeypatch.setattr(per_capture, "_compute", fails)
    with pytest.raises(duckdb.OutOfMemoryException):
        list(compute_captures(lake, ["capture_ranks"]))
    assert shown(lake, ["capture_ranks"])["capture_ranks"] == before
    monkeypatch.undo()
    list(compute_captures(lake, ["capture_ranks"]))
    assert len(shown(lake, ["capture_ranks"])["capture_ranks"]) == 3
    assert lake.versions_of(batch, ["capture_ranks"])["capture_ranks"] != "older"


@pytest.mark.slow  # 6 s; test_late_ranks.py tests stragglers of hand-written ranks, test_simulated_clocks.py clocks
def test_the_truth_of_a_simulation(capture: Capture, whole: Path) -> None:
    rows = ask(
        Lake(whole / "lake"),
        "SELECT s.rank, n_collectives, wait_ns, wait_clock_ns, n_last, n_last_clock, is_straggler, offset_ns, error_ns "
        "FROM straggler_ranks AS s JOIN clock_offsets USING (capture_id, rank) ORDER BY rank",
    )
    skew = capture.spec.collective_skew_ns
    assert len(rows) == 4
    for (rank, n, wait, wait_clock, last, last_clock, flag, offset, error), simulated in zip(
        rows, capture.ranks, strict=True
    ):
        truth = simulated.truth
        assert n == capture.n_collectives
        assert wait == pytest.approx(truth.collective_wait_ns, abs=2 * n * skew)
        assert abs(offset - (truth.clock_offset_ns - capture.ranks[0].truth.clock_offset_ns)) <= error + skew
        assert wait_clock == pytest.approx(truth.collective_wait_ns, abs=n * (error + 2 * skew))
        assert abs(last - truth.arrived_last) <= 1 and abs(last_clock - truth.arrived_last) <= 1
        assert flag == (rank == capture.straggler)


@pytest.mark.slow
def test_late_ranks_complete_a_capture_and_do_not_double_it(capture: Capture, whole: Path, tmp_path: Path) -> None:
    grown = Lake(tmp_path / "grown")
    sizes = (2, 4)
    for before, n in zip((0, *sizes), sizes, strict=False):
        ingest(capture.paths[max(before - 1, 0) : n], grown)  # with one known file
        assert stale_captures(grown, load_catalog(), TABLES)
        materialize_captures(grown, TABLES)
        assert ask(grown, "SELECT n_ranks, count(*) OVER () FROM captures") == [(n, 1)]
        assert ask(grown, "SELECT count(DISTINCT rank), count(*) FROM capture_ranks") == [(n, n)]
        missing = ask(grown, "SELECT n FROM capture_quality WHERE check_name = 'missing_ranks'")
        assert missing == ([(4 - n,)] if n < 4 else [])
    # The older batches stay until retention, but no query shows them.
    assert len(table_files(grown.root, CAPTURE_MARK)) == len(sizes)
    assert shown(grown, TABLES) == shown(Lake(whole / "lake"), TABLES)


@pytest.mark.slow  # 3 s; lake/test_crash.py tests kills of a run
@pytest.mark.kills
def test_killed_at_a_step(capture: Capture, tmp_path: Path) -> None:
    lake, expected = Lake(tmp_path / "lake"), Lake(tmp_path / "expected")
    ingest(capture.paths[:2], lake)
    materialize_captures(lake, KILLED)
    ingest(capture.paths[2:], lake)
    shutil.copytree(lake.root, expected.root)
    before = shown(lake, KILLED)
    materialize_captures(expected, KILLED)
    after = shown(expected, KILLED)
    assert before != after
    for step, lake in killed(tmp_path, 2 * len(KILLED), do_materialize):  # before and after each rename
        assert shown(lake, KILLED) in (before, after), step
        materialize_captures(lake, KILLED)
        assert shown(lake, KILLED) == after, step


@pytest.mark.slow  # tests/fleet/test_grouped.py has a missing batch of captures
def test_a_capture_whose_traces_are_gone_is_gone(lake: Lake, tmp_path: Path) -> None:
    for path in table_files(lake.root, "traces"):
        lake.take_away(batch_of(path), ["traces"])
    other = write_capture(CaptureSpec(ranks=2, seed=8), tmp_path / "other")
    ingest(other.paths, lake)
    materialize_captures(lake, TABLES)
    assert ask(lake, "SELECT n_ranks FROM captures") == [(2,)]
    assert ask(lake, "SELECT count(DISTINCT capture_id), max(rank) FROM collective_ranks") == [(1, 1)]
    assert materialize_captures(lake, TABLES) == []
