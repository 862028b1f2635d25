"""The statistical test for regressions: against brute force, published significance levels, and known noise."""

from __future__ import annotations

import itertools
import math
import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.fleet.trends.regression import discoveries, exact_p, judge, noise_floor
from tests.effort import examples

MAD_OF_NORMAL = 0.67449


def brute_force_p(base: list[float], new: list[float]) -> float:
    """Compute p over every way to choose the new values. U counts pairs won, and half a point for a draw."""

    def wins(chosen: list[float], rest: list[float]) -> float:
        return sum((a > b) + 0.5 * (a == b) for a in chosen for b in rest)

    pooled, seen, hits, ways = [*base, *new], wins(new, base), 0, 0
    for index in itertools.combinations(range(len(pooled)), len(new)):
        chosen = [pooled[i] for i in index]
        rest = [value for i, value in enumerate(pooled) if i not in index]
        hits += wins(chosen, rest) >= seen
        ways += 1
    return hits / ways


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_p_equals_brute_force_with_and_without_ties(base: list[int], new: list[int]) -> None:
    assert exact_p(base, new) == pytest.approx(brute_force_p(list(map(float, base)), list(map(float, new))), abs=1e-15)


@pytest.mark.parametrize(("n", "m", "ways"), [(5, 3, 56), (5, 4, 126), (5, 5, 252), (10, 5, 3003)])
def test_clean_separation_has_the_least_p(n: int, m: int, ways: int) -> None:
    assert exact_p(list(range(n)), list(range(n, n + m))) == 1 / ways


@pytest.mark.parametrize(("base", "u", "p"), [([1, 2, 3, 6, 7], 4, 0.048), ([1, 2, 3, 7, 8], 6, 0.111)])
def test_the_published_table(base: list[float], u: int, p: float) -> None:
    """Mann and Whitney 1947, table I: P(U <= 4) = 0.048 and P(U <= 6) = 0.111 with 5 and 5 values."""
    new = [value for value in range(1, 11) if value not in base]
    assert sum(b > a for a in new for b in base) == u
    assert round(exact_p(base, new), 3) == p


def test_large_samples_agree_with_the_normal_approximation() -> None:
    rng = random.Random(5)
    base, new = [rng.gauss(0, 1) for _ in range(40)], [rng.gauss(0.4, 1) for _ in range(30)]
    u = sum(a > b for a in new for b in base)
    z = (u - 0.5 - 600) / math.sqrt(40 * 30 * 71 / 12)
    assert exact_p(base, new) == pytest.approx(0.5 * math.erfc(z / math.sqrt(2)), abs=0.003)


def test_benjamini_hochberg_on_their_own_example() -> None:
    """The example has the 15 p values of Benjamini and Hochberg 1995, section 3.2. At 5 % four are rejected."""
    values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    values += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert discoveries({str(p): p for p in values}) == {"0.0001", "0.0004", "0.0019", "0.0095"}
    assert discoveries({}) == set()


def test_floor_by_hand() -> None:
    """The median is 100 and the deviations are 0 1 1 2 2. MAD 1 → 3 · 1.2533 · 1.4826 · 0.01 / √4 = 2.787 %."""
    assert noise_floor([98, 99, 100, 101, 102], 4) == pytest.approx(0.0278721, abs=1e-6)
    assert noise_floor([100] * 10, 5) == 0.01
    assert noise_floor([0, 0, 0], 5) is None


def test_statuses() -> None:
    base = [100.0, 100.1, 99.9, 100.2, 99.8, 100.05, 99.95, 100.15, 99.85, 100.0]
    shifted = {
        "regression": [105.0, 105.1, 104.9, 105.2, 104.8],
        "same": [100.02, 99.97, 100.12, 99.88, 100.01],
        "small but certain": [100.3, 100.4, 100.5, 100.6, 100.35],
        "large but unsure": [90.0, 91.0, 105.0, 106.0, 107.0],
        "better": [95.0, 95.1, 94.9, 95.2, 94.8],
    }
    got = {name: verdict.status for name, verdict in judge({n: (base, new) for n, new in shifted.items()}).items()}
    assert got == {
        "regression": "REGRESSION", "same": "OK", "small but certain": "SUSPECT", "large but unsure": "SUSPECT",
        "better": "OK",
    }  # fmt: skip


@pytest.mark.parametrize(("n", "m", "status"), [(9, 5, "INSUFFICIENT"), (10, 4, "INSUFFICIENT"), (10, 5, "REGRESSION")])
def test_too_few_captures(n: int, m: int, status: str) -> None:
    assert judge({"step": ([100.0 + i / 10 for i in range(n)], [120.0] * m)})["step"].status == status


@pytest.mark.parametrize(("m", "status"), [(3, "INSUFFICIENT"), (4, "REGRESSION"), (5, "REGRESSION")])
def test_least_p_decides_where_fewer_captures_are_allowed(m: int, status: str) -> None:
    """The least possible p decides whether fewer captures are allowed.

    5 + 3 captures can only reach 1/56, but 5 + 4 reach 1/126 < 1 %.
    """
    verdict = judge({"step": ([100.0, 100.1, 100.2, 100.3, 100.4], [120.0] * m)}, least_base=5, least_new=1)["step"]
    assert verdict.status == status


def test_many_metrics_need_smaller_p() -> None:
    """A metric among many needs a smaller p.

    Alone, p = 2/252 < 1 % is a regression. As the only small p of 40 metrics it is not a discovery at 5 %.
    """
    base, worse, same = (
        [100.0, 100.1, 100.2, 100.3, 106.0],
        [105.9, 120, 121, 122, 123],
        [100.0, 100.1, 100.2, 100.3, 100.4],
    )
    alone = judge({"step": (base, worse)}, 5, 5)
    crowd = judge({"step": (base, worse), **{f"m{i}": (same, same) for i in range(39)}}, 5, 5)
    assert alone["step"].p_value == pytest.approx(2 / 252)
    assert (alone["step"].status, crowd["step"].status) == ("REGRESSION", "SUSPECT")


def test_a_base_of_zeros_is_no_regression_but_no_silence() -> None:
    verdict = judge({"exposed": ([0.0] * 10, [5.0] * 5)})["exposed"]
    assert (verdict.status, verdict.effect, verdict.floor) == ("SUSPECT", None, None)


def alarm_rate(relative_mad: float, change: float, n: int, m: int, trials: int = 400) -> float:
    """Return the share of trials that end in REGRESSION.

    A capture's value is the median of 3 normally distributed step times.
    """
    rng, sigma = random.Random(f"{relative_mad} {change} {n}"), relative_mad / MAD_OF_NORMAL

    def capture(mean: float) -> float:
        return median(mean * (1 + rng.gauss(0, sigma)) for _ in range(3))

    def trial() -> bool:
        sample = ([capture(1.0) for _ in range(n)], [capture(1.0 + change) for _ in range(m)])
        return judge({"step": sample}, least_base=n, least_new=m)["step"].status == "REGRESSION"

    return sum(trial() for _ in range(trials)) / trials


@pytest.mark.parametrize(("noise", "n"), [(0.005, 10), (0.006, 10), (0.047, 10), (0.006, 5), (0.047, 5)])
def test_false_alarms_are_rare(noise: float, n: int) -> None:
    """The reference has 0.000 to 0.005 of 400 trials. The bound is twice the nominal 1 %."""
    assert alarm_rate(noise, 0.0, n, 5) <= 0.02


@pytest.mark.parametrize(
    ("noise", "change", "n", "reference", "within"),
    [
        (0.006, 0.02, 10, 0.858, 0.15),
        (0.006, 0.05, 10, 0.983, 0.03),
        (0.005, 0.10, 10, 1.000, 0.01),
        (0.047, 0.02, 10, 0.045, 0.05),
        (0.047, 0.05, 10, 0.273, 0.20),
        (0.047, 0.10, 10, 0.797, 0.20),
    ],
)
def test_detection_rates(noise: float, change: float, n: int, reference: float, within: float) -> None:
    """The reference was bootstrapped from real step times, whose noise is not normal, so the bounds are loose."""
    assert alarm_rate(noise, change, n, 5) == pytest.approx(reference, abs=within)
