"""Estimates the offsets of the ranks' clocks from the ends of their collectives, with an error bar and hard bounds.

Nobody leaves a collective before everybody has arrived, and all leave it together except for noise: end[r, i] = T_i +
o_r + noise. The offsets o come from a median polish, so a few instances that did not end together do no harm; those are
dropped and the rest is fitted again. The estimate must agree with the hard bounds (arrival before leaving); where it
cannot, the fit is refused.

A rank takes part in few of a large job's collectives, so they are held as one entry per kernel (entries.py): time and
memory grow with the kernels, not with ranks times collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.fleet.clocks.clock_bounds import bounds_of
from pipelines.fleet.collectives.entries import Entries, Instances
from pipelines.fleet.collectives.shifts import MAD_TO_SIGMA, MIN_MATCHED

_MEDIAN_TO_ERROR = 1.2533  # standard error of a median in standard errors of a mean, for normal noise
_ROUNDS, _TOLERANCE = 100, 1e-6
_PASSES = 3
_SLOPE_POINTS = 1_000
_DROP, _DROP_SIGMAS = threshold("clock_drop_ns"), threshold("clock_drop_sigmas")
_MAX_DROPPED, _MAX_SIGMA = threshold("clock_max_dropped"), threshold("clock_max_sigma_ns")
MAX_ERROR = 1 / threshold("clock_error_parts")
_MAX_CONTRADICTION = threshold("clock_max_contradiction_ns")
_DRIFT_ERRORS, _DRIFT_SPAN = threshold("clock_drift_errors"), threshold("clock_drift_span_ns")


@dataclass(frozen=True)
class RankClock:
    """A rank's clock. Offsets are relative to the first rank's clock, all in ns.

    estimate_ns: from the ends; offset_ns: the estimate clamped to [low_ns, high_ns]; error_ns: 2 standard errors.
    drift_ppm: slope of the residuals; drift_applied: it is used in `aligned`.
    """

    offset_ns: int
    estimate_ns: int
    sigma_ns: float
    error_ns: float
    drift_ppm: float
    drift_applied: bool
    low_ns: int | None
    high_ns: int | None
    n_matched: int
    max_residual_ns: float


@dataclass(frozen=True)
class ClockFit:
    """The result of a fit: the ranks' clocks (in the order given), which instances were kept, times on the first rank's
    clock.

    aligned_start_ns, aligned_end_ns: int64, of the shape that the times were given in. If there is no fit, `refused`
    says why and clocks is empty.
    """

    clocks: tuple[RankClock, ...]
    kept: np.ndarray
    aligned_start_ns: np.ndarray
    aligned_end_ns: np.ndarray
    contradiction_ns: float
    refused: str | None = None


@dataclass(frozen=True)
class _Polished:
    """A fit before bounds: (ranks,) offsets and sigmas, (instances,) kept, (entries,) times without drift."""

    entries: Entries
    starts: np.ndarray
    ends: np.ndarray
    offset: np.ndarray
    sigma: np.ndarray
    error: np.ndarray
    kept: np.ndarray

    @property
    def common(self) -> np.ndarray:
        """Returns when each instance ended, (instances,)."""
        return _common(self.entries, self.ends, self.offset)

    @property
    def counts(self) -> np.ndarray:
        """Returns which entries are of instances that were kept."""
        return self.kept[self.entries.instance]


def fit_clocks(
    instances: Instances, n_steps: int = 1, *, one_clock: bool = False, is_certain: bool = False
) -> ClockFit:
    """Fit the clocks of the ranks, which must be connected by instances. `n_steps`: profiler steps; no drift is fitted
    for one. `one_clock`, `is_certain`: as in `fit_entries`.
    """
    entries = Entries.of(instances)
    fit = fit_entries(entries, n_steps, one_clock=one_clock, is_certain=is_certain)
    aligned = []
    for values in (fit.aligned_start_ns, fit.aligned_end_ns):
        whole = np.full(instances.present.shape, entries.by_rank.least(entries.end_ns, 0)[0])
        whole[entries.rank, entries.instance] = values
        aligned.append(whole)
    return replace(fit, aligned_start_ns=aligned[0], aligned_end_ns=aligned[1])


def fit_entries(
    entries: Entries,
    n_steps: int = 1,
    about: np.ndarray | None = None,
    one_clock: bool = False,
    is_certain: bool = False,
) -> ClockFit:
    """Fit the clocks as `fit_clocks` does.

    `about`: (ranks,) int64, offsets that are near the truth; without them equal clocks are tried first. `one_clock`: the
    ranks' times are of one clock, so times and offsets stay as they are, what the ends say otherwise is in the error bars,
    and noise of the ends refuses nothing. `is_certain`: the match does not rest on the ends, so noise refuses only where its
    error bar is not small beside what ranks wait.
    """
    # Relative to a rank's first end float64 is exact to the ns, however far apart the clocks are.
    base = entries.by_rank.least(entries.end_ns, 0)
    starts = (entries.start_ns - base[entries.rank]).astype(float)
    ends = (entries.end_ns - base[entries.rank]).astype(float)
    # Where several offsets fit, the nearest to these is found.
    first_guess = (base[0] - base if about is None else about - about[0] - (base - base[0])).astype(float)
    fit = _polished(entries, starts, ends, first_guess)
    slopes = _slopes(fit)
    applied = _drifts(slopes, fit, 1 if one_clock else n_steps)
    if applied.any():
        bend = _bend(fit, np.where(applied, slopes, 0.0))
        fit = _polished(entries, starts - bend, ends - bend, first_guess)
    low, high, contradiction = bounds_of(entries, fit.starts, fit.ends, entries.bounded & fit.kept)
    estimate = fit.offset - fit.offset[0]
    final = np.where(low <= high, np.clip(estimate, low, high), estimate)
    if one_clock:
        final = (base[0] - base).astype(float)
        fit = replace(fit, error=fit.error + np.abs(estimate - final))
        contradiction = max(contradiction, float((low - final).max()), float((final - high).max()))
    wait = _mean_wait(fit, final)
    refused = _refusal(fit, contradiction, one_clock, MAX_ERROR * wait if is_certain else 0.0)
    aligned = [_aligned(values, final, base[0], entries) for values in (fit.starts, fit.ends)]
    clocks = () if refused else _clocks(fit, base - base[0], estimate, final, (low, high), (slopes, applied))
    return ClockFit(clocks, fit.kept, aligned[0], aligned[1], contradiction, refused)


def _polished(entries: Entries, starts: np.ndarray, ends: np.ndarray, first_guess: np.ndarray) -> _Polished:
    offset, kept = _fit_and_drop(entries, ends, first_guess)
    sigma = _sigmas(entries, ends, offset, kept)
    error = 2 * _MEDIAN_TO_ERROR * sigma / np.sqrt(_count(entries, kept))
    return _Polished(entries, starts, ends, offset, sigma, error, kept)


def _clocks(
    fit: _Polished,
    whole: np.ndarray,
    estimate: np.ndarray,
    final: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    drift: tuple[np.ndarray, np.ndarray],
) -> tuple[RankClock, ...]:
    """`whole`: the reference of all offsets, int64 ns."""
    residual = np.where(fit.counts, np.abs(_residual(fit.entries, fit.ends, fit.offset)), 0.0)
    worst = fit.entries.by_rank.most(residual, 0.0)
    n_matched = _count(fit.entries, fit.kept)
    return tuple(
        RankClock(
            offset_ns=int(whole[r]) + round(final[r]),
            estimate_ns=int(whole[r]) + round(estimate[r]),
            sigma_ns=float(fit.sigma[r]),
            error_ns=float(fit.error[r]),
            drift_ppm=float(drift[0][r] * 1e6),
            drift_applied=bool(drift[1][r]),
            low_ns=_bound(bounds[0][r], whole[r]),
            high_ns=_bound(bounds[1][r], whole[r]),
            n_matched=int(n_matched[r]),
            max_residual_ns=float(worst[r]),
        )
        for r in range(len(whole))
    )


def unfitted(instances: Instances, reason: str) -> ClockFit:
    """Returns the result without a fit, and why; starts are unchanged."""
    kept = np.zeros(instances.end_ns.shape[1], bool)
    return ClockFit((), kept, instances.start_ns, instances.end_ns, 0.0, reason)


def _aligned(times: np.ndarray, offset: np.ndarray, base: np.int64, entries: Entries) -> np.ndarray:
    return np.round(times - np.nan_to_num(offset)[entries.rank]).astype(np.int64) + base


def _fit_and_drop(entries: Entries, ends: np.ndarray, first_guess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets (ranks,), rounded to ns, and which instances they are based on (instances,)."""
    kept = np.ones(len(entries.bounded), bool)
    offset = _polish(entries, ends, first_guess)
    for _ in range(_PASSES):
        residual = np.abs(_residual(entries, ends, offset))
        limit = max(_DROP, _DROP_SIGMAS * float(np.median(_sigmas(entries, ends, offset, kept))))
        still = kept.copy()
        still[entries.instance[residual > limit]] = False
        if still.sum() == kept.sum() or still.sum() < MIN_MATCHED:
            kept = still
            break
        kept = still
        some, places = entries.of_instances(kept)
        offset = _polish(some, ends[places], first_guess)
    return offset, kept


def _polish(entries: Entries, ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Returns the offsets (ranks,); a rank without entries keeps the first guess."""
    for _ in range(_ROUNDS):
        found = entries.by_rank.median(ends - _common(entries, ends, offset)[entries.instance])
        found = np.where(np.isnan(found), offset, found)
        found -= np.median(found)
        moved = np.abs(found - offset).max()
        offset = found
        if moved < _TOLERANCE:
            break
    return np.round(offset)


def _common(entries: Entries, ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return entries.by_instance.median(ends - offset[entries.rank])


def _residual(entries: Entries, ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return ends - _common(entries, ends, offset)[entries.instance] - offset[entries.rank]


def _sigmas(entries: Entries, ends: np.ndarray, offset: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Returns the noise of each rank's ends (ranks,); inf for a rank none of whose instances are kept."""
    some, places = entries.of_instances(kept)
    residual = _residual(entries, ends, offset)[places]
    center = some.by_rank.median(residual)
    sigma = MAD_TO_SIGMA * some.by_rank.median(np.abs(residual - center[some.rank]))
    return np.where(np.isnan(sigma), np.inf, sigma)


def _count(entries: Entries, kept: np.ndarray) -> np.ndarray:
    """Returns the number of kept instances of each rank; at least 1, because it is a divisor."""
    return np.maximum(np.bincount(entries.rank[kept[entries.instance]], minlength=entries.n_ranks), 1)


def _slopes(fit: _Polished) -> np.ndarray:
    """Returns the Theil-Sen slope of each rank's residuals over common time, of at most 1000 evenly chosen instances."""
    entries, common = fit.entries, fit.common
    residual = _residual(entries, fit.ends, fit.offset)
    order = entries.by_rank.order
    order = order[fit.counts[order]]
    ends_at = np.cumsum(np.bincount(entries.rank[order], minlength=entries.n_ranks))
    parts = np.split(order, ends_at[:-1])
    return np.array([_theil_sen(common[entries.instance[part]], residual[part]) for part in parts])


def _theil_sen(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) > _SLOPE_POINTS:
        chosen = np.linspace(0, len(x) - 1, _SLOPE_POINTS).astype(int)
        x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    slopes = (y[second] - y[first])[apart != 0] / apart[apart != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


def _drifts(slopes: np.ndarray, fit: _Polished, n_steps: int) -> np.ndarray:
    """Returns the ranks whose drift, |slope| x span, is more than noise, over at least _DRIFT_SPAN."""
    if n_steps < 2 or not fit.kept.any():
        return np.zeros(len(slopes), bool)
    some, places = fit.entries.of_instances(fit.kept)
    ends = fit.ends[places]
    span = np.maximum(some.by_rank.most(ends, -np.inf) - some.by_rank.least(ends, np.inf), 0.0)
    return (np.abs(slopes) * span > _DRIFT_ERRORS * fit.error) & (span >= _DRIFT_SPAN)


def _bend(fit: _Polished, slopes: np.ndarray) -> np.ndarray:
    """Returns what a drift adds to each time, (entries,); 0 at the middle of the lane."""
    common = fit.common
    middle = (common[fit.kept].min() + common[fit.kept].max()) / 2
    return slopes[fit.entries.rank] * (common[fit.entries.instance] - middle)


def _bound(value: float, whole: np.int64) -> int | None:
    return int(whole) + round(value) if np.isfinite(value) else None


def _mean_wait(fit: _Polished, offset: np.ndarray) -> float:
    """Returns the time from the first arrival to the last, the mean of the instances that were kept."""
    some, places = fit.entries.of_instances(fit.kept)
    starts = fit.starts[places] - offset[some.rank]
    waits = some.by_instance.most(starts, np.nan) - some.by_instance.least(starts, np.nan)
    return float(waits[fit.kept].mean()) if fit.kept.any() else 0.0


def _refusal(fit: _Polished, contradiction: float, one_clock: bool, max_error: float) -> str | None:
    """`max_error`: the error bar that noisy ends may have."""
    n, n_kept = len(fit.kept), int(fit.kept.sum())
    if n < MIN_MATCHED:
        return f"too_few_matched: {n} of at least {MIN_MATCHED}"
    if n - n_kept > _MAX_DROPPED * n and not one_clock:
        return f"too_many_dropped: {n_kept} of {n} kept"
    if np.isinf(fit.sigma).any():
        return "too_many_dropped: no collective of a rank is kept"
    if fit.sigma.max() > _MAX_SIGMA and fit.error.max() > max_error and not one_clock:
        return f"noisy_ends: {fit.sigma.max() / 1000:.0f} us"
    if contradiction > _MAX_CONTRADICTION:
        return f"contradiction: {contradiction / 1000:.0f} us"
    return None


def joined_ranks(n_ranks: int, instances: Iterable[Sequence[int]]) -> list[list[int]]:
    """Returns the ranks (0 to n_ranks - 1) connected by instances, directly or through others, as sorted lists.

    `instances`: the ranks that take part in each.
    """
    group = {rank: [rank] for rank in range(n_ranks)}
    for members in {tuple(members) for members in instances}:
        together = {id(group[rank]): group[rank] for rank in members}
        if len(together) > 1:
            joined = [rank for ranks in together.values() for rank in ranks]
            group.update(dict.fromkeys(joined, joined))
    return sorted(sorted(ranks) for ranks in {id(ranks): ranks for ranks in group.values()}.values())
