"""Spoilt copies of a real capture of 8 ranks, with the same results as the reference program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.fleet.collectives.lanes import KINDS
from pipelines.fleet.collectives.matching import match_lane
from pipelines.fleet.collectives.rank_lane import RankLane
from tests.fleet.lanes_help import US, fitted, moved, real_lanes, refusal, without

SECOND = 1_000_000_000
YEAR = 365 * 24 * 3600 * SECOND


@pytest.fixture(scope="module")
def lanes(shared: Path) -> list[RankLane]:
    return real_lanes(shared / "traces" / "ranks" / "dlrm_8", [f"worker{i}.json.gz" for i in range(8)])


def changed(lanes: list[RankLane], rank: int, lane: RankLane) -> list[RankLane]:
    return [lane if own.rank == rank else own for own in lanes]


@pytest.mark.parametrize("place", [0, -1])
def test_without_its_first_or_last_kernel(lanes: list[RankLane], place: int) -> None:
    match, fit = fitted(changed(lanes, 3, without(lanes[3], place)))
    assert (match.refused, match.index.shape) == (None, (8, 7))
    assert fit is not None and fit.refused is None
    assert match.shift[3] == (1 if place == 0 else 0)


@pytest.mark.parametrize("away", [SECOND, YEAR])
def test_a_clock_far_away_changes_nothing_but_its_offset(lanes: list[RankLane], away: int) -> None:
    _, before = fitted(lanes)
    match, after = fitted(changed(lanes, 3, moved(lanes[3], away, away)))
    assert before is not None and after is not None and match.refused is None and after.refused is None
    for rank, (old, new) in enumerate(zip(before.clocks, after.clocks, strict=True)):
        assert new.offset_ns - old.offset_ns == (away if rank == 3 else 0)
        assert new.max_residual_ns == old.max_residual_ns
        assert new.sigma_ns == old.sigma_ns
    assert (after.aligned_start_ns == before.aligned_start_ns).all()


def test_a_kernel_of_another_kind_missing_in_the_middle(lanes: list[RankLane]) -> None:
    (reduce,) = np.flatnonzero(lanes[3].kinds == KINDS.index("allreduce"))[:1]
    assert 0 < reduce < 7
    spoilt = changed(lanes, 3, without(lanes[3], int(reduce)))
    assert (refusal(spoilt) or "").startswith("kind_order_mismatch: rank 3")


def test_one_of_a_run_of_the_same_kind_missing(lanes: list[RankLane]) -> None:
    """A call missing in a run of calls of the same kind looks like a late start.

    The shift is 1, and the instance that does not fit is dropped.
    """
    assert (lanes[3].kinds[:4] == KINDS.index("sendrecv")).all()
    match, fit = fitted(changed(lanes, 3, without(lanes[3], 1)))
    assert (match.refused, match.shift[3], match.index.shape) == (None, 1, (8, 7))
    assert fit is not None and fit.refused is None
    assert np.flatnonzero(~fit.kept).tolist() == [0]  # its kernel 0 with the other ranks' kernel 1


@pytest.mark.parametrize("seed", range(4))
def test_jitter_of_a_millisecond(lanes: list[RankLane], seed: int) -> None:
    """Ends with a jitter of a millisecond are refused.

    With jitter on one rank most instances are dropped. With jitter on all ranks the ends are noise.
    """
    draw = np.random.default_rng(seed)
    everywhere = [moved(lane, own, own) for lane in lanes for own in [_jitter(draw, lane)]]
    assert (refusal(everywhere) or "").startswith("noisy_ends: ")
    jitter = _jitter(draw, lanes[3])
    assert (refusal(changed(lanes, 3, moved(lanes[3], jitter, jitter))) or "").startswith("too_many_dropped: ")


def _jitter(draw: np.random.Generator, lane: RankLane) -> np.ndarray:
    return draw.integers(-1000 * US, 1000 * US, len(lane))


@pytest.mark.slow  # 1 s
@pytest.mark.parametrize(("ppm", "reason"), [(200, "contradiction: 64 us"), (2_000, "ambiguous_shift: rank 1")])
def test_drift(shared: Path, ppm: int, reason: str) -> None:
    lanes = real_lanes(shared / "traces" / "ranks" / "torchrec_4", [f"{i}.json.gz" for i in range(4)])
    zero, lane = lanes[0].start_ns[0], lanes[1]
    starts, ends = (((times - zero) * ppm / 1e6).astype(int) for times in (lane.start_ns, lane.end_ns))
    assert (refusal(changed(lanes, 1, moved(lane, starts, ends))) or "").startswith(reason)


def test_a_rank_of_another_job(lanes: list[RankLane], shared: Path) -> None:
    (other,) = real_lanes(shared / "traces" / "ranks" / "torchrec_4", ["0.json.gz"])
    stranger = RankLane(3, other.kinds, other.start_ns, other.end_ns)
    assert (refusal(changed(lanes, 3, stranger)) or "").startswith(("kind_order_mismatch", "ambiguous_shift"))


def test_too_few_kernels(lanes: list[RankLane]) -> None:
    short = [RankLane(lane.rank, lane.kinds[:4], lane.start_ns[:4], lane.end_ns[:4]) for lane in lanes]
    assert (match_lane(short).refused or "").startswith("too_few_matched: rank 0 has 4 of at least 5")
