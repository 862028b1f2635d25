"""The end of data and the order of collectives are the same on every rank (SWP-4, SWP-67), over gloo, in processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ranks talk through torch.distributed")

ROOT = Path(__file__).resolve().parents[2]
gloo = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="this torch has no gloo"
)


def run_ranks(tmp_path: Path, kind: str, batches: list[int]) -> list[dict[str, Any]]:
    """What each rank printed. A rank that hangs fails the test after two minutes."""
    program = [sys.executable, "-m", "tests.schedule.rank_program"]
    ranks = [
        subprocess.Popen(
            [*program, str(rank), str(len(batches)), str(tmp_path / "store"), kind, str(n)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, n in enumerate(batches)
    ]
    try:
        outputs = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, err) in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, err
    return [json.loads(out) for out, _ in outputs]


@gloo
def test_swp_67_a_rank_with_fewer_batches_ends_all_ranks(tmp_path: Path) -> None:
    long, short = run_ranks(tmp_path, "uneven", [7, 4])
    for name in ("SWPipeline", "DataFlowPipeline", "serial"):
        assert long[name]["order"] == short[name]["order"]
        assert sorted(long[name]["order"]) == sorted(f"{t}{i}" for t in ("dist", "reduce") for i in range(4))
        assert long[name]["leftover"] == [4]  # taken when the other rank had none; kept, not lost
        assert short[name]["leftover"] == []
        assert long[name]["error"] is None


@gloo
def test_swp_39_a_rank_whose_data_breaks_stops_all_ranks(tmp_path: Path) -> None:
    whole, broken = run_ranks(tmp_path, "broken data", [7, 4])
    assert broken["SWPipeline"]["error"] == "the data iterator failed when asked for iteration 4: OSError: disk"
    assert whole["SWPipeline"]["error"] == "the data iterator of another rank failed at iteration 4"
