"""Estimates the offsets of the ranks' clocks from the ends of their collectives, with an error bar and hard bounds.

Nobody leaves a collective before everybody has arrived, and all leave it together except for noise: end[r, i] = T_i +
o_r + noise. The offsets o come from a median polish, so a few instances that did not end together do no harm; those are
dropped and the rest is fitted again. The estimate must agree with the hard bounds (arrival before leaving); where it
cannot, the fit is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np

from pipelines.fleet.matching import MAD_TO_SIGMA

_MEDIAN_TO_ERROR = 1.2533  # standard error of a median in standard errors of a mean, for normal noise
_ROUNDS, _TOLERANCE = 100, 1e-6
_PASSES = 3
_SLOPE_POINTS = 1_000
# When instances are dropped and fits refused; times in ns.
_MIN_MATCHED = 5
_DROP, _DROP_SIGMAS = 200_000.0, 10.0  # a residual above the larger of the first and so many medians of sigma
_MAX_DROPPED = 0.2  # share of instances
_MAX_SIGMA = 150_000.0  # noise of a rank's ends
_MAX_CONTRADICTION = 50_000.0  # of the hard bounds
_DRIFT_SPAN = 1e9  # a drift is only applied to a lane that spans at least this


@dataclass(frozen=True)
class Instances:
    """Matched collectives: arrays (ranks, instances) of int64 ns; `present` is False where a rank takes no part.

    bounded: (instances,): nobody could leave before everybody had arrived.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    present: np.ndarray
    bounded: np.ndarray


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
    """The result of a fit: the ranks' clocks (in the order given), which instances were kept, starts on the first
    rank's clock.

    aligned_start_ns: (ranks, instances) int64. If there is no fit, `refused` says why and clocks is empty.
    """

    clocks: tuple[RankClock, ...]
    kept: np.ndarray
    aligned_start_ns: np.ndarray
    aligned_end_ns: np.ndarray
    contradiction_ns: float
    refused: str | None = None


@dataclass(frozen=True)
class _Polished:
    """A fit before bounds: (ranks,) offsets and sigmas, (instances,) kept, (ranks, instances) times without drift."""

    starts: np.ndarray
    ends: np.ndarray
    offset: np.ndarray
    sigma: np.ndarray
    error: np.ndarray
    kept: np.ndarray


def fit_clocks(instances: Instances, n_steps: int = 1) -> ClockFit:
    """Fit the clocks of the ranks, which must be connected by instances. `n_steps`: profiler steps; no drift is fitted
    for one.
    """
    base = _bases(instances)
    starts = _relative(instances.start_ns, base, instances.present)
    ends = _relative(instances.end_ns, base, instances.present)
    # Equal clocks first: where several offsets fit, the nearest to these is found.
    first_guess = (base[0] - base).astype(float)
    fit = _polished(starts, ends, first_guess)
    slopes = _slopes(fit)
    applied = _drifts(slopes, fit, n_steps)
    if applied.any():
        bend = _bend(fit, np.where(applied, slopes, 0.0))
        fit = _polished(starts - bend, ends - bend, first_guess)
    bounds = _bounds(fit.starts, fit.ends, instances.bounded & fit.kept)
    contradiction = float(max(0.0, -np.diag(bounds).min()))
    estimate = fit.offset - fit.offset[0]
    low, high = -bounds[0, :], bounds[:, 0]
    final = np.where(low <= high, np.clip(estimate, low, high), estimate)
    refused = _refusal(fit, contradiction)
    aligned = [_aligned(values, final, base[0], instances.present) for values in (fit.starts, fit.ends)]
    clocks = () if refused else _clocks(fit, base - base[0], estimate, final, (low, high), (slopes, applied))
    return ClockFit(clocks, fit.kept, aligned[0], aligned[1], contradiction, refused)


def _polished(starts: np.ndarray, ends: np.ndarray, first_guess: np.ndarray) -> _Polished:
    offset, kept = _fit_and_drop(ends, first_guess)
    sigma = _sigmas(ends, offset, kept)
    error = 2 * _MEDIAN_TO_ERROR * sigma / np.sqrt(_count(ends, kept))
    return _Polished(starts, ends, offset, sigma, error, kept)


def _clocks(
    fit: _Polished,
    whole: np.ndarray,
    estimate: np.ndarray,
    final: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    drift: tuple[np.ndarray, np.ndarray],
) -> tuple[RankClock, ...]:
    """`whole`: the reference of all offsets, int64 ns."""
    residual = np.abs(fit.ends - _common(fit.ends, fit.offset) - fit.offset[:, None])
    worst = np.nanmax(residual[:, fit.kept], axis=1)
    n_matched = _count(fit.ends, fit.kept)
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


def _bases(instances: Instances) -> np.ndarray:
    """Returns each rank's first end: relative to it, float64 is exact to the ns however far apart the clocks are."""
    return np.array([row[there].min() for row, there in zip(instances.end_ns, instances.present, strict=True)])


def _relative(times: np.ndarray, base: np.ndarray, present: np.ndarray) -> np.ndarray:
    return np.where(present, times - base[:, None], np.nan)


def _aligned(times: np.ndarray, offset: np.ndarray, base: np.int64, present: np.ndarray) -> np.ndarray:
    on_first = np.where(present, np.round(times - offset[:, None]), 0)
    return on_first.astype(np.int64) + base


def _fit_and_drop(ends: np.ndarray, first_guess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets (ranks,), rounded to ns, and which instances they are based on (instances,)."""
    kept = np.ones(ends.shape[1], bool)
    offset = _polish(ends, first_guess)
    for _ in range(_PASSES):
        residual = np.abs(ends - _common(ends, offset) - offset[:, None])
        limit = max(_DROP, _DROP_SIGMAS * float(np.median(_sigmas(ends, offset, kept))))
        still = kept & ~(np.nan_to_num(residual) > limit).any(axis=0)
        if still.sum() == kept.sum() or still.sum() < _MIN_MATCHED:
            kept = still
            break
        kept = still
        offset = _polish(ends[:, kept], first_guess)
    return offset, kept


def _polish(ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    for _ in range(_ROUNDS):
        found = np.nanmedian(ends - _common(ends, offset), axis=1)
        found -= np.median(found)
        moved = np.abs(found - offset).max()
        offset = found
        if moved < _TOLERANCE:
            break
    return np.round(offset)


def _common(ends: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return np.nanmedian(ends - offset[:, None], axis=0)


def _sigmas(ends: np.ndarray, offset: np.ndarray, kept: np.ndarray) -> np.ndarray:
    if not kept.any():
        return np.full(len(ends), np.inf)
    residual = (ends - _common(ends, offset) - offset[:, None])[:, kept]
    center = np.nanmedian(residual, axis=1)
    return MAD_TO_SIGMA * np.nanmedian(np.abs(residual - center[:, None]), axis=1)


def _count(ends: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Returns the number of kept instances of each rank; at least 1, because it is a divisor."""
    return np.maximum((~np.isnan(ends[:, kept])).sum(axis=1), 1)


def _slopes(fit: _Polished) -> np.ndarray:
    """Returns the Theil-Sen slope of each rank's residuals over common time, of at most 1000 evenly chosen instances."""
    common = _common(fit.ends, fit.offset)
    residual = fit.ends - common - fit.offset[:, None]
    return np.array([_theil_sen(common[fit.kept], row[fit.kept]) for row in residual])


def _theil_sen(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    if len(x) > _SLOPE_POINTS:
        chosen = np.linspace(0, len(x) - 1, _SLOPE_POINTS).astype(int)
        x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    slopes = (y[second] - y[first])[apart != 0] / apart[apart != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


def _drifts(slopes: np.ndarray, fit: _Polished, n_steps: int) -> np.ndarray:
    """Returns the ranks whose drift is more than noise: |slope| x span > 5 standard errors over at least _DRIFT_SPAN."""
    if n_steps < 2 or not fit.kept.any():
        return np.zeros(len(slopes), bool)
    ends = fit.ends[:, fit.kept]
    span = np.nanmax(ends, axis=1) - np.nanmin(ends, axis=1)
    return (np.abs(slopes) * span > 2.5 * fit.error) & (span >= _DRIFT_SPAN)


def _bend(fit: _Polished, slopes: np.ndarray) -> np.ndarray:
    """Returns what a drift adds to each time, (ranks, instances); 0 at the middle of the lane."""
    common = _common(fit.ends, fit.offset)
    return slopes[:, None] * (common - (common[fit.kept].min() + common[fit.kept].max()) / 2)


def _bounds(starts: np.ndarray, ends: np.ndarray, bounded: np.ndarray) -> np.ndarray:
    """Returns (ranks, ranks): the upper bound of o_a - o_b at [a, b], over all chains of ranks (Floyd-Warshall); inf
    where there is none.
    """
    limit = np.full((len(ends), len(ends)), np.inf)
    np.fill_diagonal(limit, 0.0)
    if bounded.any():
        for a, own in enumerate(ends[:, bounded]):
            room = np.nanmin(np.where(np.isnan(own - starts[:, bounded]), np.inf, own - starts[:, bounded]), axis=1)
            limit[a] = np.minimum(limit[a], np.where(np.arange(len(ends)) == a, 0.0, room))
    for via in range(len(ends)):
        limit = np.minimum(limit, limit[:, via, None] + limit[None, via, :])
    return limit


def _bound(value: float, whole: np.int64) -> int | None:
    return int(whole) + round(value) if np.isfinite(value) else None


def _refusal(fit: _Polished, contradiction: float) -> str | None:
    n, n_kept = len(fit.kept), int(fit.kept.sum())
    if n < _MIN_MATCHED:
        return f"too_few_matched: {n} of at least {_MIN_MATCHED}"
    if n - n_kept > _MAX_DROPPED * n:
        return f"too_many_dropped: {n_kept} of {n} kept"
    if fit.sigma.max() > _MAX_SIGMA:
        return f"noisy_ends: {fit.sigma.max() / 1000:.0f} us"
    if contradiction > _MAX_CONTRADICTION:
        return f"contradiction: {contradiction / 1000:.0f} us"
    return None


def joined_ranks(present: np.ndarray) -> list[list[int]]:
    """Returns the ranks (rows) connected by instances, directly or through others, as sorted row numbers."""
    graph = nx.empty_graph(len(present))
    for members in np.unique(present, axis=1).T:
        nx.add_path(graph, np.flatnonzero(members).tolist())
    return [sorted(group) for group in nx.connected_components(graph)]
