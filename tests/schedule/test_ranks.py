"""The end of data and the order of collectives are the same on every rank (SWP-4, SWP-67), over gloo, in processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Processes take seconds. test_lifecycle.py and test_failures.py test the end of data and errors of a single rank.
pytestmark = pytest.mark.slow(together="ranks of gloo")
torch = pytest.importorskip("torch", reason="ranks talk through torch.distributed")

ROOT = Path(__file__).resolve().parents[2]
gloo = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="this torch has no gloo"
)


ENGINES = ("SWPipeline", "DataFlowPipeline", "serial")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the outcomes of two ranks, by kind. A rank that hangs fails the tests after three minutes."""
    store = tmp_path_factory.mktemp("ranks") / "store"
    program = [sys.executable, "-m", "tests.schedule.rank_program"]
    running = [
        subprocess.Popen(
            [*program, str(rank), "2", str(store)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=180) for rank in running]
    finally:
        for rank in running:
            rank.kill()
    for rank, (_, err) in zip(running, outputs, strict=True):
        assert rank.returncode == 0, err
    return [json.loads(out) for out, _ in outputs]


@gloo
def test_swp_67_a_rank_with_fewer_batches_ends_all_ranks(ranks: list[dict[str, Any]]) -> None:
    long, short = (rank["fewer batches"] for rank in ranks)
    for name in ENGINES:
        assert long[name]["order"] == short[name]["order"]
        assert sorted(long[name]["order"]) == sorted(f"{t}{i}" for t in ("dist", "reduce") for i in range(4))
        assert long[name]["leftover"] == [4]  # taken when the other rank had no batch, and kept
        assert short[name]["leftover"] == []
        assert long[name]["error"] is None
        assert long[f"{name} again"]["right"] and short[f"{name} again"]["right"]


@gloo
def test_swp_39_after_a_data_error_of_one_rank_all_have_finished_the_same_iterations(
    ranks: list[dict[str, Any]],
) -> None:
    """The ranks finish all iterations that they began before the error is raised.

    So the next run meets the right partners.
    """
    whole, broken = (rank["broken data"] for rank in ranks)
    for name in ENGINES:
        assert broken[name]["error"] == "the data iterator failed when asked for iteration 4: OSError: disk"
        assert whole[name]["error"] == "the data iterator of another rank failed at iteration 4"
        assert whole[name]["leftover"] == [4] and broken[name]["leftover"] == []
        for rank in (whole, broken):
            assert rank[name]["retired"] == [0, 1, 2, 3] and rank[name]["right"]
            assert sorted(rank[name]["order"]) == sorted(f"{t}{i}" for t in ("dist", "reduce") for i in range(4))
            again = rank[f"{name} again"]
            assert (again["error"], again["retired"], again["right"]) == (None, [0, 1, 2, 3, 4], True)


@gloo
def test_ranks_may_hold_more_or_fewer_iterations_in_flight(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert (rank["other depth"]["error"], rank["other depth"]["right"]) == (None, True)
        assert rank["other depth"]["retired"] == list(range(6))


@gloo
@pytest.mark.parametrize("kind, what", [("drains early", "the same run"), ("other shortcuts", "the same plan")])
def test_ranks_that_do_not_do_the_same_are_told_before_they_mix_their_iterations(
    ranks: list[dict[str, Any]], kind: str, what: str
) -> None:
    for rank in ranks:
        assert what in rank[kind]["first"]["error"]
        assert "may be out of step" in rank[kind]["second"]["error"]
        assert rank["threads"] == []


@gloo
@pytest.mark.parametrize("name", ENGINES[:2])
def test_swp_39_a_rank_that_was_stopped_inside_a_run_begins_no_other(ranks: list[dict[str, Any]], name: str) -> None:
    """Rank 0 waits in a collective that rank 1 will never begin. Rank 1's next collective would be taken for it."""
    waits, fails = (rank[f"stopped inside {name}"] for rank in ranks)
    assert fails["first"]["error"] == "task 'dense' failed in iteration 2: ValueError: no such row"
    assert waits["first"]["error"] is not None
    for rank in (waits, fails):
        assert len(rank["refused"]) == 4  # three ways to run the engine, and another engine
        assert all("the collectives of the ranks may be out of step" in text for text in rank["refused"])
        assert rank["first"]["retired"] == list(range(len(rank["first"]["retired"])))
        assert (rank["anew"]["error"], rank["anew"]["right"], rank["anew"]["retired"]) == (None, True, [0, 1, 2, 3, 4])
