"""Bounds of clocks from a job's collectives, compared with a search over all chains of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.fleet.clocks import clock_bounds
from pipelines.fleet.clocks.clock_bounds import bounds_of
from pipelines.fleet.collectives.entries import Entries, Groups, Instances
from tests.effort import examples


def floyd_warshall(instances: Instances) -> np.ndarray:
    """Return the upper bound of o_a - o_b at [a, b]."""
    n = len(instances.present)
    limit = [[0.0 if a == b else np.inf for b in range(n)] for a in range(n)]
    for i in np.flatnonzero(instances.bounded):
        members = np.flatnonzero(instances.present[:, i])
        for a in members:
            for b in members:
                if a != b:
                    limit[a][b] = min(limit[a][b], float(instances.end_ns[a, i] - instances.start_ns[b, i]))
    for via in range(n):
        for a in range(n):
            for b in range(n):
                limit[a][b] = min(limit[a][b], limit[a][via] + limit[via][b])
    return np.array(limit)


@settings(deadline=None, max_examples=examples(80))
@given(st.integers(2, 7), st.integers(1, 9), st.integers(0, 10**6), st.sampled_from([0, 20, 150, 600]))
def test_the_same_as_all_pairs_of_ranks(n_ranks: int, n: int, seed: int, noise: int) -> None:
    draw = np.random.default_rng(seed)
    arrive = draw.integers(0, 1_000, (n_ranks, n)) + 5_000 * np.arange(n)
    leave = arrive.max(axis=0) + 100 + draw.integers(-noise, noise + 1, (n_ranks, n))
    shift = draw.integers(-(10**6), 10**6, n_ranks)[:, None]
    end = np.maximum(leave, arrive + 1)
    there, bounded = draw.random((n_ranks, n)) < 0.6, draw.random(n) < 0.8
    instances = Instances(arrive + shift, end + shift, there, bounded)
    entries = Entries.of(instances)
    low, high, contradiction = bounds_of(entries, entries.start_ns.astype(float), entries.end_ns.astype(float), bounded)
    expected = floyd_warshall(instances)
    # Contradictory bounds have no shortest chain. Only the existence of a contradiction is independent of the order.
    assert (contradiction > 0) == (np.diag(expected).min() < 0)
    if contradiction:
        return
    assert high.tolist() == expected[:, 0].tolist()
    assert low.tolist() == (-expected[0, :]).tolist()


def test_groups_without_entries() -> None:
    there = np.array([[True, False], [True, False], [False, False]])
    times = np.array([[5, 0], [7, 0], [0, 0]])
    entries = Entries.of(Instances(times, times + 3, there, np.ones(2, bool)))
    medians = entries.by_rank.median(entries.end_ns.astype(float))
    assert medians[:2].tolist() == [8.0, 10.0] and np.isnan(medians[2])
    assert entries.by_instance.least(entries.start_ns, -1).tolist() == [5, -1]
    assert entries.by_instance.most(entries.start_ns, -1).tolist() == [7, -1]


def test_medians_are_those_of_numpy() -> None:
    draw = np.random.default_rng(3)
    key, values = draw.integers(0, 9, 200), draw.normal(size=200)
    expected = [np.median(values[key == group]) for group in range(9)]
    assert Groups(key, 9).median(values).tolist() == expected
    assert {len(values[key == group]) % 2 for group in range(9)} == {0, 1}


def test_pairs_of_ranks_are_only_looked_at_where_bounds_contradict(monkeypatch: pytest.MonkeyPatch) -> None:
    there, times = np.ones((3, 1), bool), np.array([[5], [7], [6]])
    entries = Entries.of(Instances(times, times + 3, there, np.ones(1, bool)))
    monkeypatch.setattr(clock_bounds, "_all_pairs", lambda *_: pytest.fail("the cube of the ranks"))
    low, high, _ = bounds_of(entries, entries.start_ns.astype(float), entries.end_ns.astype(float), np.ones(1, bool))
    assert low.tolist() == [0.0, -1.0, -2.0] and high.tolist() == [0.0, 5.0, 4.0]
