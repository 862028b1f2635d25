"""Efficiency and exposure of ranks that wait for a straggler (PRB-20 to PRB-22).

Waiting is neither work nor communication."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.harness import call, kernel, x

Rows = Callable[[str, str], list[tuple]]

TABLES = ["step_exposure", "step_pipeline", "capture_ranks"]
BASE_NS = 1_790_000_000 * 10**9
STEP, TRANSFER, COMPUTE, BEFORE = 1000, 100, 100, 20


def rank_trace(late: int, steps: int) -> dict[str, Any]:
    """Return a trace of steps of 1000 us.

    In each step the rank sleeps `late` us, then computes for 100 us.

    Its AllReduce begins after 20 us of computing. It ends 100 us after the latest rank, which sleeps 700 us, begins its
    AllReduce. Gaps between steps differ, so collectives can be matched.
    """
    events: list[dict[str, Any]] = []
    for number in range(steps):
        start, ids = number * STEP + 37 * number**2, 10 * number + 1
        begins, ends = start + late, start + 700 + BEFORE + TRANSFER
        events += [
            x("user_annotation", f"ProfilerStep#{number}", start, STEP),
            call("cudaLaunchKernel", begins, 1, ids),
            kernel("gemm", begins, COMPUTE, ids),
            call("cudaLaunchKernel", begins + 2, 1, ids + 1),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", begins + BEFORE, ends - begins - BEFORE, ids + 1, 9),
        ]
    info = {"rank": int(late > 0), "world_size": 2}
    return {"distributedInfo": info, "baseTimeNanoseconds": BASE_NS, "traceEvents": events}


def written(folder: Path, steps: int) -> list[Path]:
    """Write two ranks. Rank 1 sleeps 700 us in every step, and rank 0 waits as long in its AllReduce."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, late in ((0, 0), (1, 700)):
        (folder / f"rank{rank}.json").write_text(json.dumps(rank_trace(late, steps)))
    return sorted(folder.glob("rank*.json"))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Return a capture of two ranks, of which the second computes four times as long."""
    spec = CaptureSpec(ranks=2, steps=4, straggler=1, straggler_slowdown=4.0, seed=3)
    return write_capture(spec, tmp_path_factory.mktemp("slow"))


def asking(folder: Path, files: dict[str, list[Path]]) -> Rows:
    """Return a function that returns columns of step_exposure (e) and step_pipeline (p) of a job, by step and rank.

    One lake has all jobs.
    """
    lake = Lake(folder / "lake")
    for job, paths in files.items():
        ingest(paths, lake, job=job)
    materialize_all(lake, TABLES)

    def rows_of(job: str, columns: str) -> list[tuple]:
        with lake.connect([*TABLES, "captures"]) as con:
            return con.execute(
                f"SELECT {columns} FROM step_exposure AS e JOIN captures AS j USING (capture_id) "
                "JOIN capture_ranks AS c USING (capture_id, rank) JOIN step_pipeline AS p ON p.trace_id = c.trace_id "
                f"AND p.step = e.step WHERE j.job = '{job}' ORDER BY e.step, e.rank"
            ).fetchall()

    return rows_of


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("exposure")
    return asking(folder, {"late": written(folder / "late", 6)})


@pytest.fixture(scope="module")
def more_rows(tmp_path_factory: pytest.TempPathFactory, slow: Capture) -> Rows:
    folder = tmp_path_factory.mktemp("more")
    return asking(folder, {"short": written(folder / "short", 3), "slow": slow.paths})


def test_who_waits_and_who_is_waited_for_have_the_same_efficiency_and_exposure(rows: Rows) -> None:
    us = 1000
    table = rows(
        "late",
        "e.rank, p.efficiency, p.comp_ns, e.efficiency, e.transfer_ns, e.exposed_transfer_ns, e.exposed_transfer_percent, "
        "e.wait_ns, e.exposed_wait_ns, e.n_communication, e.n_matched, p.communication_ns, p.exposed_communication_percent",
    )
    same = (0.1, COMPUTE * us, 0.1, TRANSFER * us, BEFORE * us, 20)
    # Measured on one rank alone, 720 of the 800 us in the collective are not hidden.
    waits = (0, *same, 700 * us, 700 * us, 1, 1, 800 * us, 90)
    late = (1, *same, 0, 0, 1, 1, TRANSFER * us, 20)
    assert table == [pytest.approx(row) for _ in range(6) for row in (waits, late)]


@pytest.mark.slow(together="exposure")  # 5 s for their lake
def test_exposure_without_waiting_is_not_told_where_no_rank_is_matched(more_rows: Rows) -> None:
    """The exposure without waiting is unknown if no rank is matched.

    Fewer than five collectives are not matched, so the waiting is unknown.
    """
    columns = "e.n_communication, e.n_matched, e.transfer_ns, e.wait_ns, e.exposed_transfer_percent, e.exposure_ratio, e.efficiency"
    assert more_rows("short", columns) == [(1, 0, None, None, None, None, 0.1)] * 6


@pytest.mark.slow(together="exposure")
def test_beside_a_slow_rank_the_others_do_not_read_as_busy(more_rows: Rows, slow: Capture) -> None:
    table = more_rows(
        "slow",
        "e.rank, e.efficiency, e.exposed_transfer_percent, p.exposed_communication_percent, e.wait_ns, e.transfer_ns + e.wait_ns, p.communication_ns",
    )
    for (rank, efficiency, exposed, measured, *_), straggler in zip(table[::2], table[1::2], strict=True):
        assert (rank, straggler[0]) == (0, 1)
        assert efficiency < 0.35 < 0.8 < straggler[1]  # it computes a quarter of the straggler's time
        assert exposed < 60 < 90 < measured
        assert exposed == pytest.approx(straggler[2], abs=20)
        assert straggler[2] == pytest.approx(straggler[3])
    for rank in range(2):
        waited = sum(row[4] for row in table if row[0] == rank)
        assert waited == pytest.approx(slow.ranks[rank].truth.collective_wait_ns, rel=0.02, abs=20_000)
    assert [row[5] for row in table] == [row[6] for row in table]  # no communication is lost


@pytest.mark.slow
def test_torchrec_s_waiting_ranks_read_as_its_straggler(shared: Path, tmp_path: Path) -> None:
    """Ranks that wait for a straggler are as efficient as the straggler.

    In torchrec_4 rank 2 is late, and the three others wait in NCCL. Before waiting was excluded, they had efficiencies
    of 0.98 to 1.03, and rank 2 of 0.92 to 0.94.
    """
    rows = asking(tmp_path, {"torchrec": sorted((shared / "traces" / "ranks" / "torchrec_4").glob("*.json.gz"))})
    table = rows(
        "torchrec",
        "e.step, e.rank, e.efficiency, e.transfer_ns, e.wait_ns, e.exposed_transfer_ns + e.exposed_wait_ns, p.communication_ns, "
        "p.communication_ns - p.communication_overlapped_ns, e.exposed_transfer_percent",
    )
    assert [row[:2] for row in table] == [(step, rank) for step in (4, 5, 6) for rank in range(4)]
    for step in (4, 5, 6):
        of_step = {row[1]: row for row in table if row[0] == step}
        straggler = of_step.pop(2)
        # the other ranks wait, the straggler does not
        assert max(row[4] for row in of_step.values()) > 30 * straggler[4]
        for row in of_step.values():
            assert row[2] == pytest.approx(straggler[2], rel=0.05) and row[2] < 0.8
            assert row[3] == straggler[3]  # one and the same collective
            assert row[8] < 30
    for _, _, _, transfer, wait, exposed, communication, not_hidden, _ in table:
        assert transfer + wait == communication
        assert 0.95 * not_hidden < exposed <= not_hidden  # kernels of other steps hide some of it, too
