"""The choice of sampled steps: a fixed share, or as many as a time budget allows."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import pytest

from pipelines.record.sampling import HIGHEST_RATE, N_PLAIN, Sampling
from tests.effort import first_of

MS = 1_000_000


def loop(sampling: Sampling, n: int, plain: Callable[[int], float], extra: Callable[[int], float]) -> list[int]:
    """Run n steps of `plain` ms, of which the i-th sampled one takes `extra(i)` ms more. Return the sampled steps."""
    sampled: list[int] = []
    for step in range(n):
        ns = round(plain(step) * MS)
        if sampling.choose():
            sampling.sampled_step(ns + round(extra(len(sampled)) * MS))
            sampled.append(step)
        else:
            sampling.plain_step(ns)
    return sampled


BUDGETS, EXTRA_MS = (0.002, 0.01, 0.05), (2.0, 18.4, 400.0)
FEW = ((0.01, 18.4), (0.002, 400.0), (0.05, 2.0))


@pytest.mark.parametrize(
    ("budget", "extra_ms"),
    first_of([*FEW, *(pair for pair in product(BUDGETS, EXTRA_MS) if pair not in FEW)], len(FEW)),
)
def test_sampling_takes_the_budget_and_not_more(budget: float, extra_ms: float) -> None:
    sampling = Sampling(None, budget, seed=0)
    n = len(loop(sampling, 200_000, lambda step: 10.4, lambda i: extra_ms))
    elapsed_ms = 200_000 * 10.4 + n * extra_ms
    share, step = n * extra_ms / elapsed_ms, extra_ms / elapsed_ms
    assert share <= budget + step
    expected = 200_000 * min(budget * 10.4 / extra_ms, HIGHEST_RATE)
    assert n >= 0.9 * expected - 4 * expected**0.5
    assert sampling.cost_ns == pytest.approx(n * extra_ms * MS, rel=1e-6)


def test_at_no_time_has_more_been_spent_than_the_budget_and_one_step() -> None:
    """At no time, sampling has taken more than its budget and one step.

    Censuses cost much more than other sampled steps, and steps differ in length.
    """
    dice = random.Random(3)
    sampling = Sampling(None, 0.01, seed=1)
    census = [200.0 if i & (i + 1) == 0 else 18.0 for i in range(10_000)]
    spent = elapsed = 0.0
    n_sampled = 0
    for _ in range(50_000):
        plain = dice.uniform(9, 11)
        if sampling.choose():
            assert spent <= 0.01 * elapsed + 0.03 * n_sampled  # the error of the median is some 0.03 ms per step
            sampling.sampled_step(round((plain + census[n_sampled]) * MS))
            spent += census[n_sampled]
            elapsed += plain + census[n_sampled]
            n_sampled += 1
        else:
            sampling.plain_step(round(plain * MS))
            elapsed += plain
    assert n_sampled > 100
    assert spent / elapsed < 0.0105


def test_a_budget_follows_a_loop_that_becomes_slower() -> None:
    sampling = Sampling(None, 0.01, seed=0)
    sampled = loop(sampling, 60_000, lambda step: 10.0 if step < 30_000 else 100.0, lambda i: 20.0)
    before, after = (sum(lower <= step < lower + 30_000 for step in sampled) for lower in (0, 30_000))
    assert after > 5 * before > 0


def test_free_sampling_is_not_done_at_every_step() -> None:
    sampling = Sampling(None, 0.01, seed=0)
    n = len(loop(sampling, 20_000, lambda step: 10.0, lambda i: 0.0))
    assert sampling.rate == HIGHEST_RATE == 0.05
    assert abs(n - 1000) < 4 * (20_000 * 0.05 * 0.95) ** 0.5


def test_a_budget_begins_when_there_are_steps_to_compare_with() -> None:
    for seed in range(200):
        sampled = loop(Sampling(None, 1.0, seed), 40, lambda step: 10.0, lambda i: 0.0)
        assert all(step >= N_PLAIN for step in sampled)
    earliest = min(
        (loop(Sampling(None, 1.0, seed), 40, lambda step: 10.0, lambda i: 0.0) or [40])[0] for seed in range(200)
    )
    assert earliest == N_PLAIN == 5


def test_a_fixed_rate_is_kept_whatever_it_costs_and_is_the_same_on_every_rank() -> None:
    cheap = loop(Sampling(0.3, 0.01, seed=5), 1000, lambda step: 1.0, lambda i: 0.0)
    costly = loop(Sampling(0.3, 0.01, seed=5), 1000, lambda step: 1.0, lambda i: 500.0)
    assert cheap == costly and abs(len(cheap) - 300) < 4 * (1000 * 0.3 * 0.7) ** 0.5


def test_the_cost_is_unknown_without_steps_to_compare_with() -> None:
    sampling = Sampling(1.0, 0.01, seed=0)
    loop(sampling, 10, lambda step: 1.0, lambda i: 1.0)
    sampling.spent(5)
    assert sampling.cost_ns is None


@pytest.mark.parametrize("rate, budget", [(-0.1, 0.01), (1.1, 0.01), (None, 0.0), (None, 1.1)])
def test_shares_outside_0_to_1_are_refused(rate: float | None, budget: float) -> None:
    with pytest.raises(ValueError, match=r"give the fraction of"):
        Sampling(rate, budget, 0)
