"""Markdown tables of recorded pairs: predictions compared with second runs, and first causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import quantiles

from tests.critical_path.pairs.predictions import Judged, Prediction
from tests.critical_path.pairs.recorded import Pair, Recording

LARGE = 10
"""Error in points from which a reason is needed."""
_WITHOUT = ", without the profiler"
PROFILER_LARGE = 15
"""Limit in percent that nine of ten computed durations without the profiler should meet."""


def error(pair: Pair, prediction: Prediction) -> float | None:
    """Return the difference between a prediction and the second run, in points.

    The second run is measured without the profiler if the prediction is. None if either is missing.
    """
    ratio = pair.untraced if prediction.is_untraced else pair.traced
    return None if prediction.percent is None or ratio is None else prediction.percent - 100 * (ratio - 1)


def predictions_table(recording: Recording, judged: Sequence[Judged]) -> str:
    """Return a row for each program whose change a command or a fix expresses, in percent of a step."""
    lines = [
        f"{_heading(recording)}:",
        "",
        "| program | change | predicted by | predicted | true, traced | true, untraced | error, points |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    errors, reasons = [], []
    for judgement in judged:
        truth = " | ".join(_cell(_percent(ratio)) for ratio in (judgement.pair.traced, judgement.pair.untraced))
        for prediction in judgement.predictions:
            off = error(judgement.pair, prediction)
            errors += [] if off is None else [abs(off)]
            cells = (
                judgement.pair.name,
                judgement.pair.change,
                f"`{prediction.way}`{_WITHOUT if prediction.is_untraced and prediction.percent is not None else ''}",
                _cell(prediction.percent),
                truth,
                _cell(off),
            )
            lines.append(f"| {' | '.join(cells)} |")
            if off is None or abs(off) > LARGE:
                reasons.append(f"- {judgement.pair.name}, `{prediction.way}`: {_reason(judgement.pair, prediction)}")
    n = sum(len(judgement.predictions) for judgement in judged)
    heading = [f"Not answered, or more than {LARGE} points off:", ""] if reasons else []
    return "\n".join([*lines, "", _spread(errors, n), "", *heading, *reasons]).rstrip()


def _reason(pair: Pair, prediction: Prediction) -> str:
    """Return why a prediction is missing or far off."""
    if prediction.reason or pair.note:
        return prediction.reason or pair.note or ""
    other = error(pair, replace(prediction, is_untraced=not prediction.is_untraced))
    if other is None or abs(other) > LARGE:
        return "no reason is known"
    runs = "with" if prediction.is_untraced else "without"
    return f"the profiler: {abs(other):.1f} points off the runs {runs} it"


def fixes_score(recording: Recording, judged: Sequence[Judged]) -> str:
    """Return one line with the errors of the fixes' savings compared with the second runs."""
    of_fixes = [
        (judgement.pair, prediction)
        for judgement in judged
        for prediction in judgement.predictions
        if prediction.way.startswith("fix ")
    ]
    errors = [abs(off) for pair, prediction in of_fixes if (off := error(pair, prediction)) is not None]
    return f"- {_heading(recording)}: {_spread(errors, len(of_fixes))}"


def causes_table(recording: Recording, judged: Sequence[Judged]) -> str:
    """Return a row per program: its first cause, the expected causes, and whether the first cause is forbidden."""
    lines = [
        f"{_heading(recording)}:",
        "",
        "| program | first cause | expected | right | forbidden |",
        "|---|---|---|---|---|",
    ]
    for judgement in judged:
        right = "yes" if is_right(judgement) else "**no**"
        bad = f"**{judgement.cause}**" if is_forbidden(judgement) else ""
        pair = judgement.pair
        lines.append(f"| {pair.name} | {judgement.cause or '-'} | {', '.join(pair.causes)} | {right} | {bad} |")
    score = f"{sum(map(is_right, judged))} of {len(judged)} right, {sum(map(is_forbidden, judged))} forbidden."
    return "\n".join([*lines, "", score])


def profiler_table(recording: Recording, judged: Sequence[Judged]) -> str:
    """Return how many computed durations without the profiler are close to the measured ones.

    A row follows for each that is not.
    """
    lines = [
        "| program | ms without the profiler | with it, % | as computed without it, % |",
        "|---|---:|---:|---:|",
    ]
    n = n_large = 0
    for judgement in judged:
        pair, computed_us = judgement.pair, judgement.without_profiler_us
        if pair.plain_us is None or computed_us is None:
            continue
        traced, computed = (100 * (length - pair.plain_us) / pair.plain_us for length in (pair.timed_us, computed_us))
        n += 1
        if abs(computed) > PROFILER_LARGE:
            n_large += 1
            lines.append(f"| {pair.name} | {pair.plain_us / 1000:.2f} | {traced:+.1f} | {computed:+.1f} |")
    score = f"{_heading(recording)}: {n - n_large} of {n} within {PROFILER_LARGE} %"
    return "\n".join([f"{score}; the others:", "", *lines]) if n_large else f"{score}."


def is_right(judged: Judged) -> bool:
    """Return whether the first cause is an expected one."""
    return judged.cause in judged.pair.causes


def is_forbidden(judged: Judged) -> bool:
    """Return whether the pair forbids this first cause."""
    return judged.cause in judged.pair.forbidden


def _heading(recording: Recording) -> str:
    return f"`{recording.folder.name}` ({recording.device}, torch {recording.torch})"


def _spread(errors: Iterable[float], n: int) -> str:
    off = sorted(errors)
    if len(off) < 2:
        return f"{len(off)} of {n} answered."
    middle, nine_tenths = quantiles(off, n=10, method="inclusive")[4::4]
    return (
        f"{len(off)} of {n} answered: median {middle:.1f} points off, nine of ten within {nine_tenths:.1f}, "
        f"{sum(value > LARGE for value in off)} more than {LARGE}."
    )


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * (ratio - 1)


def _cell(percent: float | None) -> str:
    return "" if percent is None else f"{percent:+.1f}"
