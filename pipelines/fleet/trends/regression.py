"""A test of whether a metric (one number per capture) is worse in the new captures than in the base.

To allow for noise, two criteria must agree. The first is a median effect above a floor derived from the base's own
spread (MAD). The second is a one-sided exact Mann-Whitney test. It permutes ranks, because a permutation of the
difference of medians would not get below p = 1 % with 5 + 5 captures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from pipelines.base.datafiles import threshold

LEAST_EFFECT, _ERRORS = threshold("regression_effect"), threshold("regression_errors")
P_LIMIT = threshold("regression_p")
FALSE_DISCOVERY_RATE = threshold("regression_false_discoveries")
LEAST_BASE, LEAST_NEW = threshold("regression_base"), threshold("regression_new")
# Standard error of a median in units of the MAD, for normal noise: sigma is 1.4826 MAD, and the median's standard error
# is 1.2533 = sqrt(pi / 2) times that of the mean.
_ERROR_OF_MEDIAN = 1.2533 * 1.4826


@dataclass(frozen=True)
class Verdict:
    """The verdict on a metric. `status`: REGRESSION, SUSPECT (one of the two criteria), OK or INSUFFICIENT.

    `effect` and `floor` are relative to the base's median (0.02 is 2 %). Both are None if the base's median is 0, or
    for INSUFFICIENT. `p_value` is None for INSUFFICIENT.
    """

    status: str
    reason: str
    n_base: int
    n_new: int
    base_median: float | None = None
    new_median: float | None = None
    effect: float | None = None
    floor: float | None = None
    p_value: float | None = None


def exact_p(base: Sequence[float], new: Sequence[float]) -> float:
    """Return the one-sided exact Mann-Whitney p value.

    It is the share of all draws of `len(new)` pooled values whose rank sum is at least as high. Equal values share the
    mean of their ranks. The distribution is conditional on these ties, so the p value is also exact with ties. Raise
    ValueError if a side is empty.
    """
    if not base or not new:
        raise ValueError("both sides need a value")
    pooled = Counter([*base, *new])
    sizes = tuple(pooled[value] for value in sorted(pooled))
    twice_rank, below = {}, 0
    for value in sorted(pooled):
        twice_rank[value] = 2 * below + pooled[value] + 1
        below += pooled[value]
    rank_sum = sum(twice_rank[value] for value in new)
    ways_by_sum = _rank_sums(sizes, len(new))
    return sum(n for total, n in ways_by_sum.items() if total >= rank_sum) / math.comb(len(base) + len(new), len(new))


@lru_cache(maxsize=256)
def _rank_sums(sizes: tuple[int, ...], drawn: int) -> dict[int, int]:
    """Return the number of ways to draw `drawn` values, by twice the sum of their mid-ranks.

    `sizes`: the sizes of the groups of equal values, ascending by value. From a group of `size` equal values, k can be
    drawn in C(size, k) ways, each with the group's mid-rank.
    """
    by_drawn: list[dict[int, int]] = [{0: 1}, *({} for _ in range(drawn))]
    below = 0
    for size in sizes:
        twice_rank = 2 * below + size + 1
        below += size
        grown: list[dict[int, int]] = [dict(sums) for sums in by_drawn]
        for n_drawn, sums in enumerate(by_drawn):
            for k in range(1, min(size, drawn - n_drawn) + 1):
                n_choices, target = math.comb(size, k), grown[n_drawn + k]
                for total, ways in sums.items():
                    target[total + k * twice_rank] = target.get(total + k * twice_rank, 0) + ways * n_choices
        by_drawn = grown
    return by_drawn[drawn]


def discoveries(p_values: Mapping[str, float]) -> set[str]:
    """Return the names that the Benjamini-Hochberg step-up procedure accepts at FALSE_DISCOVERY_RATE."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    n_accepted = max(
        (n for n, name in enumerate(ordered, 1) if p_values[name] <= FALSE_DISCOVERY_RATE * n / len(ordered)),
        default=0,
    )
    return set(ordered[:n_accepted])


def noise_floor(base: Sequence[float], n_new: int) -> float | None:
    """Return the smallest effect that counts, or None if the base's median is 0.

    The floor is LEAST_EFFECT (1 %) or three standard errors of the new median, whichever is larger. The standard error
    is derived from the base's MAD.
    """
    middle = median(base)
    if middle == 0:
        return None
    spread = median(abs(value - middle) for value in base) / abs(middle)
    return max(LEAST_EFFECT, _ERRORS * _ERROR_OF_MEDIAN * spread / math.sqrt(n_new))


def judge(
    samples: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    least_base: int = LEAST_BASE,
    least_new: int = LEAST_NEW,
) -> dict[str, Verdict]:
    """Return a verdict for each metric's (base, new) values, where higher is worse. All metrics are tested together.

    REGRESSION: the effect is above the floor, p < 1 %, and the p value is among the discoveries at a false discovery
    rate of 5 % over all tested metrics. INSUFFICIENT: there are too few captures, or so few that even the highest ranks
    cannot reach p < 1 %.
    """
    reasons = {name: _too_few(len(base), len(new), least_base, least_new) for name, (base, new) in samples.items()}
    tested = {name: exact_p(*samples[name]) for name, reason in reasons.items() if reason is None}
    discovered = discoveries(tested)
    verdicts = {}
    for name, (base, new) in samples.items():
        if reason := reasons[name]:
            verdicts[name] = Verdict("INSUFFICIENT", reason, len(base), len(new))
        else:
            verdicts[name] = _verdict(base, new, tested[name], name in discovered)
    return verdicts


def _too_few(n_base: int, n_new: int, least_base: int, least_new: int) -> str | None:
    if n_base < max(least_base, 1) or n_new < max(least_new, 1):
        return f"{n_base} base and {n_new} new captures; at least {least_base} and {least_new} are needed"
    ways = math.comb(n_base + n_new, n_new)
    return None if 1 / ways < P_LIMIT else f"with {n_base} and {n_new} captures, p cannot be below 1/{ways}"


def _verdict(base: Sequence[float], new: Sequence[float], p_value: float, is_discovery: bool) -> Verdict:
    before, after, floor = median(base), median(new), noise_floor(base, len(new))
    effect = after / before - 1 if floor is not None else None
    is_large = effect is not None and floor is not None and effect > floor
    is_rare = p_value < P_LIMIT and is_discovery
    status = "REGRESSION" if is_large and is_rare else "SUSPECT" if is_large or is_rare else "OK"
    return Verdict(
        status, _reason(is_large, is_rare, effect), len(base), len(new), before, after, effect, floor, p_value
    )


def _reason(is_large: bool, is_rare: bool, effect: float | None) -> str:
    if effect is None:
        return "the base's median is 0: no relative effect" + ("; the new captures rank higher" if is_rare else "")
    size = "the effect exceeds the noise floor" if is_large else "the effect is within the noise"
    return size + (", and the new captures rank higher" if is_rare else ", and the ranks do not stand out")
