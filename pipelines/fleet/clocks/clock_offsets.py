"""Estimates of the ranks' clock offsets from the ends of their collectives, with error bars and hard bounds.

No rank leaves a collective before all ranks have arrived, and all leave at the same time except for noise. So end[r, i]
= T_i + o_r + noise. A median polish estimates the offsets o, because it is robust against a few instances that did not
end at the same time. Such instances are dropped, and the fit is repeated without them. Each rank must arrive before any
rank leaves, which sets hard bounds. If the estimate contradicts these bounds, the fit is refused.

A rank takes part in few of a large job's collectives, so they are stored as one entry per kernel (entries.py). Time and
memory grow with the number of kernels, not with ranks times collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.fleet.clocks.clock_bounds import bounds_of
from pipelines.fleet.collectives.entries import Entries, Instances
from pipelines.fleet.collectives.shifts import MAD_TO_SIGMA, MIN_MATCHED

_MEDIAN_TO_ERROR = 1.2533  # standard error of a median relative to that of a mean, for normal noise
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
    """A rank's clock. Offsets are relative to the first rank's clock, in ns.

    estimate_ns: the offset estimated from the ends. offset_ns: the estimate clamped to [low_ns, high_ns]. error_ns: 2
    standard errors. drift_ppm: slope of the residuals. drift_applied: the drift is removed from the aligned times.
    low_ns, high_ns: hard bounds, None if nothing bounds the offset. max_residual_ns: the largest residual of the kept
    instances.
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
    """The result of a clock fit: the ranks' clocks in input order, and times on the first rank's clock.

    kept: (instances,) bool, whether the fit used the instance. aligned_start_ns, aligned_end_ns: int64, with the shape
    of the input times. contradiction_ns: by how much the hard bounds contradict each other. If the fit was refused,
    `refused` is the reason and `clocks` is empty.
    """

    clocks: tuple[RankClock, ...]
    kept: np.ndarray
    aligned_start_ns: np.ndarray
    aligned_end_ns: np.ndarray
    contradiction_ns: float
    refused: str | None = None


@dataclass(frozen=True)
class _Polished:
    """A fit before bounds: (ranks,) offset, sigma and error, (instances,) kept, (entries,) times without drift."""

    entries: Entries
    starts: np.ndarray
    ends: np.ndarray
    offset: np.ndarray
    sigma: np.ndarray
    error: np.ndarray
    kept: np.ndarray

    @property
    def common(self) -> np.ndarray:
        """Return the common end of each instance, (instances,)."""
        return _common(self.entries, self.ends, self.offset)

    @property
    def counts(self) -> np.ndarray:
        """Return a mask of the entries of kept instances, (entries,)."""
        return self.kept[self.entries.instance]


def fit_clocks(
    instances: Instances, n_steps: int = 1, *, one_clock: bool = False, is_certain: bool = False
) -> ClockFit:
    """Fit the clocks of the ranks, which must be connected by instances.

    `n_steps`: number of profiler steps; with a single step, no drift is fitted. `one_clock`, `is_certain`: as in
    `fit_entries`.
    """
    entries = Entries.of(instances)
    fit = fit_entries(entries, n_steps, None, one_clock, is_certain)
    aligned = []
    for values in (fit.aligned_start_ns, fit.aligned_end_ns):
        filled = np.full(instances.present.shape, entries.by_rank.least(entries.end_ns, 0)[0])
        filled[entries.rank, entries.instance] = values
        aligned.append(filled)
    return replace(fit, aligned_start_ns=aligned[0], aligned_end_ns=aligned[1])


def fit_entries(
    entries: Entries, n_steps: int, about: np.ndarray | None, one_clock: bool, is_certain: bool
) -> ClockFit:
    """Fit the clocks of ranks whose kernels are stored as entries.

    `about`: (ranks,) int64, offsets near the truth, ns. If it is None, the fit starts from equal clocks. `one_clock`:
    the ranks share a clock, so times and offsets stay unchanged. Deviations of the ends then widen the error bars, and
    a fit with noisy ends is not refused. `is_certain`: the match does not depend on the ends. A noisy fit is then
    refused only if its error bar is not small compared with the mean wait of ranks.
    """
    # Subtract each rank's first end, so that float64 is exact to the ns even if the clocks are far apart.
    base = entries.by_rank.least(entries.end_ns, 0)
    starts = (entries.start_ns - base[entries.rank]).astype(float)
    ends = (entries.end_ns - base[entries.rank]).astype(float)
    # If several offsets fit, the polish finds the offsets nearest to this guess.
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
    offset, is_kept = _fit_and_drop(entries, ends, first_guess)
    sigma = _sigmas(entries, ends, offset, is_kept)
    error = 2 * _MEDIAN_TO_ERROR * sigma / np.sqrt(_count(entries, is_kept))
    return _Polished(entries, starts, ends, offset, sigma, error, is_kept)


def _clocks(
    fit: _Polished,
    reference_ns: np.ndarray,
    estimate: np.ndarray,
    final: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    drift: tuple[np.ndarray, np.ndarray],
) -> tuple[RankClock, ...]:
    """Return the ranks' clocks. `reference_ns`: int64 (ranks,), added to all offsets and bounds."""
    residual = np.where(fit.counts, np.abs(_residual(fit.entries, fit.ends, fit.offset)), 0.0)
    worst = fit.entries.by_rank.most(residual, 0.0)
    n_matched = _count(fit.entries, fit.kept)
    return tuple(
        RankClock(
            offset_ns=int(reference_ns[rank]) + round(final[rank]),
            estimate_ns=int(reference_ns[rank]) + round(estimate[rank]),
            sigma_ns=float(fit.sigma[rank]),
            error_ns=float(fit.error[rank]),
            drift_ppm=float(drift[0][rank] * 1e6),
            drift_applied=bool(drift[1][rank]),
            low_ns=_bound(bounds[0][rank], reference_ns[rank]),
            high_ns=_bound(bounds[1][rank], reference_ns[rank]),
            n_matched=int(n_matched[rank]),
            max_residual_ns=float(worst[rank]),
        )
        for rank in range(len(reference_ns))
    )


def unfitted(instances: Instances, reason: str) -> ClockFit:
    """Return a result without a fit, for this reason. Starts and ends are unchanged."""
    is_kept = np.zeros(instances.end_ns.shape[1], bool)
    return ClockFit((), is_kept, instances.start_ns, instances.end_ns, 0.0, reason)


def _aligned(times: np.ndarray, offset: np.ndarray, base: np.int64, entries: Entries) -> np.ndarray:
    return np.round(times - np.nan_to_num(offset)[entries.rank]).astype(np.int64) + base


def _fit_and_drop(entries: Entries, ends: np.ndarray, first_guess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets (ranks,), rounded to ns, and a mask of the instances that determine them (instances,)."""
    is_used = np.ones(len(entries.bounded), bool)
    offset = _polish(entries, ends, first_guess)
    for _ in range(_PASSES):
        residual = np.abs(_residual(entries, ends, offset))
        limit = max(_DROP, _DROP_SIGMAS * float(np.median(_sigmas(entries, ends, offset, is_used))))
        is_still_used = is_used.copy()
        is_still_used[entries.instance[residual > limit]] = False
        if is_still_used.sum() == is_used.sum() or is_still_used.sum() < MIN_MATCHED:
            is_used = is_still_used
            break
        is_used = is_still_used
        used_entries, positions = entries.of_instances(is_used)
        offset = _polish(used_entries, ends[positions], first_guess)
    return offset, is_used


def _polish(entries: Entries, ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the offsets (ranks,).

    A rank without entries keeps its first guess, except for the common shift of each round.
    """
    for _ in range(_ROUNDS):
        polished = entries.by_rank.median(ends - _common(entries, ends, offset)[entries.instance])
        polished = np.where(np.isnan(polished), offset, polished)
        polished -= np.median(polished)
        largest_change = np.abs(polished - offset).max()
        offset = polished
        if largest_change < _TOLERANCE:
            break
    return np.round(offset)


def _common(entries: Entries, ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return entries.by_instance.median(ends - offset[entries.rank])


def _residual(entries: Entries, ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return ends - _common(entries, ends, offset)[entries.instance] - offset[entries.rank]


def _sigmas(entries: Entries, ends: np.ndarray, offset: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """Return the noise of each rank's ends (ranks,), ns; inf for a rank without kept instances."""
    kept_entries, positions = entries.of_instances(is_kept)
    residual = _residual(entries, ends, offset)[positions]
    center = kept_entries.by_rank.median(residual)
    sigma = MAD_TO_SIGMA * kept_entries.by_rank.median(np.abs(residual - center[kept_entries.rank]))
    return np.where(np.isnan(sigma), np.inf, sigma)


def _count(entries: Entries, is_kept: np.ndarray) -> np.ndarray:
    """Return the number of kept instances of each rank, at least 1, because it is a divisor."""
    return np.maximum(np.bincount(entries.rank[is_kept[entries.instance]], minlength=entries.n_ranks), 1)


def _slopes(fit: _Polished) -> np.ndarray:
    """Return the Theil-Sen slope of each rank's residuals over common time, (ranks,).

    It uses at most _SLOPE_POINTS evenly spaced instances of a rank.
    """
    entries, common = fit.entries, fit.common
    residual = _residual(entries, fit.ends, fit.offset)
    order = entries.by_rank.order
    order = order[fit.counts[order]]
    stops = np.cumsum(np.bincount(entries.rank[order], minlength=entries.n_ranks))
    positions_by_rank = np.split(order, stops[:-1])
    return np.array(
        [_theil_sen(common[entries.instance[positions]], residual[positions]) for positions in positions_by_rank]
    )


def _theil_sen(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) > _SLOPE_POINTS:
        chosen = np.linspace(0, len(x) - 1, _SLOPE_POINTS).astype(int)
        x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    distance = x[second] - x[first]
    slopes = (y[second] - y[first])[distance != 0] / distance[distance != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


def _drifts(slopes: np.ndarray, fit: _Polished, n_steps: int) -> np.ndarray:
    """Return a mask of the ranks with a span of at least _DRIFT_SPAN whose drift (|slope| x span) exceeds the noise."""
    if n_steps < 2 or not fit.kept.any():
        return np.zeros(len(slopes), bool)
    kept_entries, positions = fit.entries.of_instances(fit.kept)
    ends = fit.ends[positions]
    span = np.maximum(kept_entries.by_rank.most(ends, -np.inf) - kept_entries.by_rank.least(ends, np.inf), 0.0)
    return (np.abs(slopes) * span > _DRIFT_ERRORS * fit.error) & (span >= _DRIFT_SPAN)


def _bend(fit: _Polished, slopes: np.ndarray) -> np.ndarray:
    """Return the time that drift adds to each entry, (entries,) ns. It is 0 at the middle of the kept instances."""
    common = fit.common
    middle = (common[fit.kept].min() + common[fit.kept].max()) / 2
    return slopes[fit.entries.rank] * (common[fit.entries.instance] - middle)


def _bound(value: float, reference_ns: np.int64) -> int | None:
    return int(reference_ns) + round(value) if np.isfinite(value) else None


def _mean_wait(fit: _Polished, offset: np.ndarray) -> float:
    """Return the mean time from the first to the last arrival over the kept instances, ns."""
    kept_entries, positions = fit.entries.of_instances(fit.kept)
    starts = fit.starts[positions] - offset[kept_entries.rank]
    waits = kept_entries.by_instance.most(starts, np.nan) - kept_entries.by_instance.least(starts, np.nan)
    return float(waits[fit.kept].mean()) if fit.kept.any() else 0.0


def _refusal(fit: _Polished, contradiction: float, one_clock: bool, max_error: float) -> str | None:
    """Return the reason to refuse a fit, or None. `max_error`: the largest error bar of an accepted noisy fit, ns."""
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
    """Return the sorted lists of ranks (0 to n_ranks - 1) that instances connect, directly or through other ranks.

    `instances`: the ranks that take part in each instance.
    """
    group = {rank: [rank] for rank in range(n_ranks)}
    for members in {tuple(members) for members in instances}:
        groups_to_join = {id(group[rank]): group[rank] for rank in members}
        if len(groups_to_join) > 1:
            joined = [rank for ranks in groups_to_join.values() for rank in ranks]
            group.update(dict.fromkeys(joined, joined))
    return sorted(sorted(ranks) for ranks in {id(ranks): ranks for ranks in group.values()}.values())
