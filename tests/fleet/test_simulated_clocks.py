"""Simulated ranks, whose shifts, offsets, waits and culprits are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.fleet.clocks.clock_offsets import fit_clocks, joined_ranks
from pipelines.fleet.collectives.entries import Instances
from pipelines.fleet.collectives.matching import match_lane
from pipelines.fleet.collectives.rank_lane import RankLane
from tests.effort import examples
from tests.fleet.lanes_help import US, cut, fitted, instances, moved, refusal, simulated


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.integers(-(10**9), 10**9), min_size=4, max_size=4), st.integers(0, 10**6), st.integers(0, 3))
def test_offsets_lie_within_their_bounds_and_close_to_the_truth(offsets: list[int], seed: int, late: int) -> None:
    lanes, waits = simulated(4, 60, tuple(offsets), noise_ns=2_000, seed=seed)
    lanes[2] = cut(lanes[2], slice(late, None))
    match, fit = fitted(lanes)
    assert match.refused is None and fit is not None and fit.refused is None
    assert match.index.shape[1] == 60 - late
    assert {rank: shift - match.shift[0] for rank, shift in match.shift.items()} == {0: 0, 1: 0, 2: late, 3: 0}
    for clock, truth in zip(fit.clocks, offsets, strict=True):
        away = abs(clock.offset_ns - (truth - offsets[0]))
        assert away < 3 * 1.2533 * 2_000 / np.sqrt(60) * 2  # the error of a median of 60, and of the reference's median
        assert clock.low_ns is not None and clock.high_ns is not None
        assert clock.low_ns <= truth - offsets[0] + 20_000 and clock.high_ns >= truth - offsets[0] - 20_000
    aligned_waits = fit.aligned_start_ns.max(axis=0) - fit.aligned_start_ns
    assert np.abs(aligned_waits - waits[:, late:]).max() < 10_000


def test_a_drift_is_only_applied_to_several_steps_and_a_second() -> None:
    lanes, waits = simulated(4, 400, noise_ns=2_000, seed=3)
    zero, lane = lanes[0].start_ns[0], lanes[1]
    ppm = 30  # over 2.8 s: 84 us, within the allowed noise
    lanes[1] = moved(lane, *(((t - zero) * ppm / 1e6).astype(int) for t in (lane.start_ns, lane.end_ns)))
    _, one_step = fitted(lanes, n_steps=1)
    _, steps = fitted(lanes, n_steps=3)
    assert one_step is not None and steps is not None and steps.refused is None
    assert not any(clock.drift_applied for clock in one_step.clocks)
    assert steps.clocks[1].drift_applied
    drifts = [clock.drift_ppm - steps.clocks[0].drift_ppm for clock in steps.clocks]  # all are relative to their median
    assert drifts == [pytest.approx(truth, abs=1) for truth in (0, ppm, 0, 0)]
    aligned_waits = steps.aligned_start_ns.max(axis=0) - steps.aligned_start_ns
    assert np.abs(aligned_waits - waits).max() < 15_000
    short, _ = simulated(4, 40, noise_ns=2_000, seed=3)  # 0.3 s
    short[1] = moved(short[1], *(((t - zero) * 100 / 1e6).astype(int) for t in (short[1].start_ns, short[1].end_ns)))
    _, fit = fitted(short, n_steps=3)
    assert fit is not None and not any(clock.drift_applied for clock in fit.clocks)


def test_instances_that_ranks_leave_at_different_times_are_dropped_and_do_no_harm() -> None:
    lanes, _ = simulated(4, 40, noise_ns=2_000, seed=5)
    early = np.zeros(40, int)
    early[[7, 20]] = -900 * US
    lanes[3] = moved(lanes[3], early, early)
    _, fit = fitted(lanes)
    assert fit is not None and fit.refused is None
    assert np.flatnonzero(~fit.kept).tolist() == [7, 20]
    assert all(abs(clock.offset_ns) < 3_000 for clock in fit.clocks)


def test_sequence_numbers_match_across_a_gap_where_order_would_not() -> None:
    lanes, _ = simulated(3, 40, seed=2)
    gone = np.delete(np.arange(40), [10, 11])
    numbered = [RankLane(lane.rank, lane.kinds, lane.start_ns, lane.end_ns, np.arange(100, 140)) for lane in lanes]
    assert refusal([lanes[0], cut(lanes[1], gone), lanes[2]]) is not None
    own = cut(lanes[1], gone)
    numbered[1] = RankLane(1, own.kinds, own.start_ns, own.end_ns, np.arange(100, 140)[gone])
    match = match_lane(numbered)
    assert match.refused is None and match.index[0].tolist() == gone.tolist() == match.index[2].tolist()
    assert match.index[1].tolist() == list(range(38))
    fit = fit_clocks(instances(numbered, match))
    assert fit.refused is None and fit.kept.all()


def test_sequence_numbers_whose_kinds_differ_are_refused() -> None:
    lanes, _ = simulated(2, 40, seed=2)
    numbered = [
        RankLane(lane.rank, lane.kinds, lane.start_ns, lane.end_ns, np.arange(40) + lane.rank) for lane in lanes
    ]
    assert (match_lane(numbered).refused or "").startswith("kind_order_mismatch: rank 1 at sequence number")


def test_broadcasts_do_not_bound_clocks() -> None:
    """Broadcasts do not bound clocks.

    The sender may leave before a late receiver arrives, which must not count as a contradiction of the clocks.
    """
    lanes, _ = simulated(2, 40, noise_ns=0, seed=4)
    matched = instances(lanes, match_lane(lanes))
    early = matched.end_ns.copy()
    early[0, ::8] = matched.start_ns[0, ::8] + 1_000
    start = matched.start_ns.copy()
    start[1, ::8] = early[0, ::8] + 90 * US
    bounded = np.ones(40, bool)
    all_bound = fit_clocks(Instances(start, early, matched.present, bounded))
    bounded[::8] = False
    some_bound = fit_clocks(Instances(start, early, matched.present, bounded))
    assert some_bound.refused is None and some_bound.clocks[1].offset_ns == 0
    kept_out = np.flatnonzero(~all_bound.kept).tolist()
    assert all_bound.refused is not None or kept_out == list(range(0, 40, 8))


def test_ranks_that_only_a_third_one_joins() -> None:
    present = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]], bool)
    assert joined_ranks(5, [np.flatnonzero(column).tolist() for column in present.T]) == [[0, 1, 2], [3, 4]]
    lanes, _ = simulated(3, 60, (0, 700, -40_000), noise_ns=1_000, seed=9)
    whole = instances(lanes, match_lane(lanes))
    there = np.ones((3, 60), bool)
    there[2, :30] = there[0, 30:] = False  # 0 with 1, then 1 with 2
    fit = fit_clocks(Instances(whole.start_ns, whole.end_ns, there, whole.bounded))
    assert fit.refused is None
    assert [abs(c.offset_ns - t) < 1_500 for c, t in zip(fit.clocks, (0, 700, -40_000), strict=True)] == [True] * 3
    assert [clock.n_matched for clock in fit.clocks] == [30, 60, 30]


def test_unequal_ranks_are_never_matched_twice() -> None:
    lanes, _ = simulated(4, 40, seed=6)
    lanes = [cut(lane, slice(rank, 40 - rank)) for rank, lane in enumerate(lanes)]
    match = match_lane(lanes)
    assert match.refused is None and match.index.shape == (4, 34)
    assert all((np.diff(row) == 1).all() for row in match.index)
    assert all(row[0] - row_below[0] == 1 for row, row_below in pairwise(match.index))
