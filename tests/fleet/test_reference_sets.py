"""Real captures compared with the output of an independent program: every column matches to the microsecond."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures

# test_late_ranks.py and test_simulated_clocks.py test simulated ranks.
SETS = [
    pytest.param(name, marks=pytest.mark.slow(together=f"reference of {name}"))
    for name in ("dlrm_8", "torchrec_unequal", "torchrec_4")
]
READ = ("collective_groups", "clock_offsets", "collectives", "collective_ranks")
MICROSECOND = 1_000
Opened = Callable[[str], duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def con_of(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    @cache
    def opened(name: str) -> duckdb.DuckDBPyConnection:
        lake = Lake(tmp_path_factory.mktemp(name) / "lake")
        folder = shared / "traces" / "ranks" / name
        ingest(sorted(path for path in folder.glob("*.json.gz") if "execution" not in path.name), lake)
        materialize_captures(lake, READ)
        return duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True)

    return opened


def reference(shared: Path, name: str) -> dict[str, Any]:
    whole = json.loads((shared / "golden" / "fleet" / f"collectives_{name}.json").read_text())
    assert whole["status"] == "ok"
    (lane,) = whole["lanes"]
    return lane


def near(expected_us: float) -> Any:
    return pytest.approx(expected_us * 1000, abs=MICROSECOND)


@pytest.mark.parametrize("name", SETS)
def test_lanes(con_of: Opened, shared: Path, name: str) -> None:
    lane = reference(shared, name)
    con = con_of(name)
    rows = con.execute(
        "SELECT rank, n_kernels, n_matched, n_unmatched, reference_rank, shift, runner_up_ns, contradiction_ns, refused_reason "
        "FROM collective_groups ORDER BY rank"
    ).fetchall()
    assert [row[0] for row in rows] == [int(rank) for rank in lane["counts"]]
    for rank, n_kernels, n_matched, n_unmatched, reference_rank, shift, runner_up, contradiction, refused in rows:
        assert (n_kernels, n_unmatched) == (lane["counts"][str(rank)], lane["unmatched"][str(rank)])
        assert (n_matched, reference_rank, refused) == (lane["matched"], lane["reference"], None)
        assert shift == lane["shift"][str(rank)]
        expected = lane["runner_up"][str(rank)]
        assert runner_up == (None if expected is None else near(expected))
        assert contradiction == near(lane["contradiction_us"])


@pytest.mark.parametrize("name", SETS)
def test_clocks(con_of: Opened, shared: Path, name: str) -> None:
    expected = reference(shared, name)["clock"]
    names = (
        "rank, offset_ns, estimate_ns, low_ns, high_ns, sigma_ns, error_ns, max_residual_ns, drift_ppm, is_clipped, "
        "drift_applied, refused, method"
    )
    rows = con_of(name).execute(f"SELECT {names} FROM clock_offsets ORDER BY rank").fetchall()
    assert len(rows) == len(expected)
    for rank, offset, estimate, low, high, sigma, error, residual, drift, clipped, applied, refused, method in rows:
        clock = expected[str(rank)]
        assert offset == near(clock["aligned_us"])
        assert estimate == near(clock["rel_offset_us"])
        assert (low, high) == (near(clock["bound_lo_us"]), near(clock["bound_hi_us"]))
        assert (sigma, error) == (near(clock["sigma_us"]), near(clock["error_bar_us"]))
        assert residual == near(clock["resid_max_us"])
        assert drift == pytest.approx(clock["drift_ppm"], abs=0.01)
        assert (clipped, applied, refused, method) == (clock["clipped"], False, None, "collective_ends")


@pytest.mark.parametrize("name", SETS)
def test_collectives(con_of: Opened, shared: Path, name: str) -> None:
    lane = reference(shared, name)
    con = con_of(name)
    rows = con.execute(
        "SELECT collective_id, kind, transfer_ns, culprit_rank, culprit_clock_rank, kept, bytes, algorithm_gigabytes_per_s, bus_gigabytes_per_s "
        "FROM collectives ORDER BY collective_id"
    ).fetchall()
    ranks = con.execute(
        "SELECT collective_id, list(event_id ORDER BY rank), list(wait_ns ORDER BY rank) FROM collective_ranks "
        "GROUP BY collective_id ORDER BY collective_id"
    ).fetchall()
    assert len(rows) == len(ranks) == len(lane["instances"])
    for row, (collective_id, events, waits), instance in zip(rows, ranks, lane["instances"], strict=True):
        assert row[:2] == (instance["i"], instance["kind"]) and collective_id == instance["i"]
        assert events == instance["ev"]
        assert row[2] == near(instance["transfer_us"])
        assert waits == [near(wait) for wait in instance["wait_us"]]
        assert row[3:6] == (instance["culprit_dur"], instance["culprit_clock"], instance["kept"])
        assert row[6:] == (None, None, None)  # these traces do not record the bytes
    assert sum(row[2] for row in rows) == near(lane["transfer_us_total"])
    assert [row[0] for row in rows if not row[5]] == lane["dropped_instances"]


@pytest.mark.parametrize("name", SETS)
def test_skew_of_ends_and_starts(con_of: Opened, shared: Path, name: str) -> None:
    lane = reference(shared, name)
    median, largest = (
        con_of(name).execute("SELECT median(end_skew_ns), max(end_skew_ns) FROM collectives WHERE kept").fetchall()[0]
    )
    assert median == near(lane["end_spread_aligned_us"]["median"])
    assert largest == near(lane["end_spread_aligned_us"]["max"])


@pytest.mark.parametrize("name", SETS)
def test_waits_of_ranks(con_of: Opened, shared: Path, name: str) -> None:
    lane = reference(shared, name)
    con = con_of(name)
    rows = con.execute(
        "SELECT rank, count(*), sum(duration_ns), sum(wait_ns), sum(wait_clock_ns) FROM collective_ranks GROUP BY rank ORDER BY rank"
    ).fetchall()
    assert len(rows) == len(lane["per_rank"])
    for rank, n, kernels, wait, wait_clock in rows:
        expected = lane["per_rank"][str(rank)]
        assert n == expected["n"]
        assert kernels == near(expected["kernel_us"])
        assert wait == near(expected["wait_us"])
        # A sum of n waits, each of which depends on two offsets.
        assert wait_clock == pytest.approx(expected["wait_clock_us"] * 1000, abs=MICROSECOND)


@pytest.mark.parametrize("name", SETS)
def test_the_second_estimate_agrees_with_the_first(con_of: Opened, name: str) -> None:
    rows = con_of(name).execute("SELECT estimate_ns, launch_floor_offset_ns FROM clock_offsets").fetchall()
    assert all(abs(ends - floor) <= 12 * MICROSECOND for ends, floor in rows)
