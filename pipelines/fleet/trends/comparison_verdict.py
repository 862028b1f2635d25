"""The result of a comparison as a sentence, the caveats about it, and the verdict on a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

from pipelines.base import units
from pipelines.base.datafiles import rule_rows, threshold
from pipelines.base.kernel_names import short_name
from pipelines.fleet.trends.comparison import Comparison, Difference, OnePair, Pair, Part, Trace, Window, totals

_UNCHANGED = threshold("compare_unchanged_percent") / 100
_APART = threshold("compare_apart_percent") / 100
_MOST = 5  # maximum number of kinds of work in a sentence
_NAME = 40  # maximum number of characters of a name
_NOBODY = ("outside operators", "stream ")
"""Prefixes of names that add nothing to their cause."""

WORDS = {
    "gemm": "matrix products",
    "conv": "convolutions",
    "norm": "normalization",
    "embedding": "embeddings",
    "copy": "copies",
    "fill": "fills",
    "reduce": "reductions",
    "fused": "fused kernels",
    "other": "other work",
}
"""Categories in words. A category without an entry is already a word."""

_BEFORE, _LAUNCHED_BEFORE = "(launch not in the trace)", "work launched before"
_SAID_BY_KIND = ("attention", "communication")
"""Categories whose name is clearer than the names of their operators."""
_TITLES = {row["cause"]: row["title"].partition(" (")[0] for row in rule_rows("cause_kinds")}
_WAITING = ("gpu_waiting", "earlier_work", "late_rank", "unknown")
"""Causes that are neither host time nor GPU work of the window."""
_NOT_HOST = ("gpu_computing", "copies", "communication", *_WAITING)


def percent(control: float, test: float) -> str:
    """Return the growth from control to test as text: `+10.8 %`."""
    if not control:
        return "new" if test else "+0.0 %"
    grown = 100 * (test - control) / control
    return f"{'+' if grown >= 0 else units.MINUS}{abs(grown):,.1f} %"


def sentence(part: Part) -> str:
    """Return a sentence on the changes of the window's length, GPU work, host time and other waiting.

    The length is the mean over all steps. A step of several ranks is as long as on its slowest rank. The changes are
    means over all windows. A change of at most 1 % of the window is omitted, except in sums. "Unchanged" means a change
    of at most 1 % of the value itself.
    """
    control, test = lengths(part.pairs)
    unit = "step" if part.pairs[0].control.step is not None else "trace"
    qualifiers = _many(part.pairs)
    grown = ", ".join([percent(control, test), *qualifiers]) + _in_the_median(part.pairs, test - control, control)
    if abs(test - control) <= _UNCHANGED * control:
        opening = f"The {unit} takes {units.time(test)}, unchanged ({grown})"
    else:
        opening = f"The {unit} takes {units.time(test)} instead of {units.time(control)} ({grown})"
    return "; ".join([f"{opening}: {_work(part, control)}", _host(part, control), *_waiting(part, control)])


def lengths(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the mean length of a step (or of the whole traces) on both sides, ns."""
    control, test = map(fmean, zip(*lengths_of_steps(pairs), strict=True))
    return control, test


def lengths_of_steps(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    """Return the length of each step on both sides, ns, which is the length on the step's slowest rank."""
    steps: dict[tuple[int | None, int | None], list[Pair]] = {}
    for pair in pairs:
        steps.setdefault((pair.control.step, pair.test.step), []).append(pair)
    return [
        (max(pair.control.duration_ns for pair in pairs_of_step), max(pair.test.duration_ns for pair in pairs_of_step))
        for pairs_of_step in steps.values()
    ]


def in_words(row: Difference, by: str) -> str:
    """Return the name of a row for the user. Categories and causes are in words, and operators have their shapes."""
    words = {"category": WORDS, "cause": _TITLES}.get(by, {})
    return words.get(row.name, row.name) + (f" {row.input_dims}" if row.input_dims else "")


def changed_most(part: Part) -> str:
    """Return the mean change per window and the name whose GPU time changed most in a part, or "" without rows."""
    rows = part.categories if part.rows and part.rows[0].device is None else part.rows  # causes also divide host time
    return f"{units.difference(rows[0].diff_ns / len(part.pairs))} {rows[0].name}" if rows else ""


def _sides(pairs: Sequence[Pair]) -> tuple[list[Window], list[Window]]:
    return [pair.control for pair in pairs], [pair.test for pair in pairs]


def _many(pairs: Sequence[Pair]) -> list[str]:
    """Return the qualifiers of a length, which state the number of averaged steps and of ranks."""
    steps, places = len(lengths_of_steps(pairs)), len({pair.where for pair in pairs})
    qualifiers = [f"mean of {steps} steps"] if steps > 1 else []
    return qualifiers + [f"{'of each ' if qualifiers else ''}the slowest of {places} ranks"] * (places > 1)


def _in_the_median(pairs: Sequence[Pair], of_mean: float, window: float) -> str:
    """Return a clause with the median change and the window that changed most, or "".

    The text is empty if the median change is close to the mean change, `of_mean`, relative to `window` (all in ns).
    """
    control, test = map(median, zip(*lengths_of_steps(pairs), strict=True))
    if abs(of_mean - (test - control)) <= _APART * window:
        return ""
    changes = [pair.test.duration_ns - pair.control.duration_ns for pair in pairs]
    largest = max(range(len(pairs)), key=lambda index: abs(changes[index]))
    window_name = named(pairs[largest])
    clause = f"; in the median {units.difference(test - control)}"
    return clause + (f", {window_name} {units.difference(changes[largest])}" if window_name else "")


def _work(part: Part, window: float) -> str:
    control, test = totals(part.categories)
    if not control and not test:
        return "no GPU work"
    if not (control and test):
        return f"no GPU work in {'test' if control else 'control'}"
    if _by_kernels(part):
        means = [(short_name(row.name, _NAME), row.diff_ns / len(part.pairs)) for row in part.rows]
        changes = [change for change in means if abs(change[1]) > _UNCHANGED * window]
    else:
        kinds = _kinds_of_work(part).items()
        changes = [
            change for category, work in kinds for change in _named_change(category, work, len(part.pairs), window)
        ]
    changes.sort(key=lambda change: -abs(change[1]))
    if changes:
        return ", ".join(f"{name} {units.difference(mean)}" for name, mean in changes[:_MOST])
    return f"GPU work {_or_unchanged(control / len(part.pairs), test / len(part.pairs))}"


def _or_unchanged(control: float, test: float) -> str:
    """Return "unchanged" for a change of at most 1 % of the larger side (the limit of the rows), else the change."""
    return "unchanged" if abs(test - control) <= _UNCHANGED * max(control, test) else units.difference(test - control)


def _by_kernels(part: Part) -> bool:
    """Return whether on exactly one side most work has no operator, and all rows have a category, as kernels do.

    The operators' categories of the other side then have no counterpart.
    """
    total_ns = totals(part.work)
    without = totals(row for row in part.work if row.name.startswith("("))
    mostly_without = [2 * ns > of_all for ns, of_all in zip(without, total_ns, strict=True)]
    return mostly_without[0] != mostly_without[1] and all(row.cat for row in part.rows)


def _kinds_of_work(part: Part) -> dict[str, list[Difference]]:
    """Return operators by category.

    Work whose launch is not in the trace is a separate category if it is at most half of each side's work.
    """
    before_ns = totals(row for row in part.work if row.name == _BEFORE)
    is_separate = all(2 * ns <= of_all for ns, of_all in zip(before_ns, totals(part.work), strict=True))
    rows_by_category: dict[str, list[Difference]] = {}
    for row in part.work:
        rows_by_category.setdefault(
            _LAUNCHED_BEFORE if is_separate and row.name == _BEFORE else row.cat or "", []
        ).append(row)
    return rows_by_category


def _named_change(category: str, work: Sequence[Difference], windows: int, window: float) -> list[tuple[str, float]]:
    """Return the name and mean change per window of a category, or [] if it changed too little.

    If the change of one operator differs from the category's change by at most a quarter, return that operator instead.
    """
    mean = sum(row.diff_ns for row in work) / windows
    if abs(mean) <= _UNCHANGED * window:
        return []
    largest = max(work, key=lambda row: (abs(row.diff_ns), row.name))
    explains_it = abs(largest.diff_ns / windows - mean) <= abs(mean) / 4 and not largest.name.startswith("(")
    if category in _SAID_BY_KIND or not explains_it:
        return [(WORDS.get(category, category), mean)]
    return [(largest.name.rpartition("::")[2], largest.diff_ns / windows)]


def _host(part: Part, window: float) -> str:
    """Return a clause on how the host's time on the critical path changed, by cause.

    Without causes, the clause is about the idle time of the GPU. Without idle times, it is about the host's events.
    """
    silent_sides = [
        side for side, ns in zip(("control", "test"), totals(part.host), strict=True) if part.host and not ns
    ]
    if silent_sides:
        return f"no events of the host in {' and '.join(silent_sides)}"
    if all(totals(part.causes)):
        # Without GPU work, communication is host time.
        not_host = _NOT_HOST if any(totals(part.categories)) else _WAITING
        causes = [row for row in part.causes if row.name not in not_host]
        means = {row.name: row.diff_ns / len(part.pairs) for row in causes}
        clauses = [_cause_clause(part, *change) for change in means.items() if abs(change[1]) > _UNCHANGED * window][:2]
        growth_ns = sum(means.values())
        if abs(growth_ns) <= _UNCHANGED * window:
            total = f"host {_or_unchanged(*(ns / len(part.pairs) for ns in totals(causes)))}"
            return f"{total} in all: {', '.join(clauses)}" if clauses else total
        return f"host {units.difference(growth_ns)}" + (f" ({', '.join(clauses)})" if clauses else "")
    idle_by_pair = [(pair.control.idle_ns, pair.test.idle_ns) for pair in part.pairs]
    growths_ns = [test - control for control, test in idle_by_pair if control is not None and test is not None]
    if growths_ns:
        growth_ns = sum(growths_ns) / len(growths_ns)
        return (
            "GPU idle unchanged" if abs(growth_ns) <= _UNCHANGED * window else f"GPU idle {units.difference(growth_ns)}"
        )
    means_of_names = [(row.name, row.diff_ns / len(part.pairs)) for row in part.host]
    clauses = [f"{name} {units.difference(mean)}" for name, mean in means_of_names if abs(mean) > _UNCHANGED * window]
    return f"host: {', '.join(clauses[:2])}" if clauses else "host unchanged"


def _waiting(part: Part, window: float) -> list[str]:
    """Return the changes of the path's causes that are neither host time nor GPU work of the window."""
    if not all(totals(part.causes)):
        return []
    means = {row.name: row.diff_ns / len(part.pairs) for row in part.causes if row.name in _WAITING}
    return [
        f"{_TITLES[name]} {units.difference(mean)}" for name, mean in means.items() if abs(mean) > _UNCHANGED * window
    ]


def _cause_clause(part: Part, cause: str, mean: float) -> str:
    """Return a cause and its change.

    If the change of one name differs from the cause's change by at most a quarter, append that name.
    """
    owners = {row.name: row.diff_ns / len(part.pairs) for row in part.owners if row.cat == cause}
    largest = max(owners, key=lambda name: (abs(owners[name]), name), default="")
    explains_it = largest and abs(owners[largest] - mean) <= abs(mean) / 4 and not largest.startswith(_NOBODY)
    return f"{_TITLES[cause]} {units.difference(mean)}" + (f": {short_name(largest, _NAME)}" if explains_it else "")


def doubts(pairs: Sequence[Pair], control: Sequence[Trace], test: Sequence[Trace]) -> list[str]:
    """Return caveats about windows with work that was launched earlier, truncated traces, and digests."""
    caveats = []
    for side, traces, windows in zip(("control", "test"), (control, test), _sides(pairs), strict=True):
        earlier, total_ns = (sum(getattr(window, key) for window in windows) for key in ("earlier_ns", "duration_ns"))
        if earlier > _UNCHANGED * total_ns:
            mean = units.time(earlier / len(windows))
            caveats.append(
                f"{side}: {mean} of the GPU work in its window was launched before it, or its launch is not in the trace"
            )
        if any(trace.is_digest for trace in traces):
            caveats.append(
                f"{side}: its digest sums up small operators, kernels and host events as (other …); a name that is summed up on "
                "one side only looks added or deleted"
            )
        cut = {trace.trace_id: trace.file for trace in traces if trace.is_cut}
        caveats += [
            f"{side}: {name} is cut off, its last step may be partial"
            for trace_id, name in cut.items()
            if trace_id in {window.trace_id for window in windows}
        ]
    return caveats


@dataclass(frozen=True)
class Judgement:
    """A verdict on whether all windows stay within a limit.

    `is_judged`: False if there is nothing to compare. `sentence`: the verdict as a sentence.
    """

    is_judged: bool
    is_fine: bool
    sentence: str


def judge(comparison: Comparison, most: float) -> Judgement:
    """Judge the growth of GPU time and of the length of steps, in the mean over all windows and in the worst window.

    `most`: by how much test may exceed control, percent. Growth of GPU time in a step that became shorter does not
    count. Nor does growth of a single step's GPU time by at most 1 % of the step. If a test trace has no GPU work, but
    its control has some, the GPU was not recorded. Its GPU time is then unknown, not 0.
    """
    pairs = comparison.pairs
    are_steps = pairs[0].pair.control.step is not None
    durations = [(pair.pair.control.duration_ns, pair.pair.test.duration_ns) for pair in pairs]
    length = lengths([pair.pair for pair in pairs])
    work = [
        _Times(
            *pair.gpu[:2],
            growth_counts=not (are_steps and (_is_shorter(*duration) or _is_little(*pair.gpu[:2], duration[0]))),
        )
        for pair, duration in zip(pairs, durations, strict=True)
    ]
    control, test = sum(time.control for time in work), sum(time.test for time in work)
    if not control and (test or not are_steps):
        missing = "GPU time" if test else "GPU time and the length of steps"
        return Judgement(False, False, f"--fail-on compares {missing}, and the control has none in what is compared")
    unmeasured = next((row.pair for row in pairs if row.gpu.control_ns and row.pair.test.idle_ns is None), None)
    if unmeasured:
        of_rank = f" ({unmeasured.where})" if unmeasured.where else ""
        return Judgement(
            False, False, f"--fail-on compares GPU time, and the test has none in its whole trace{of_rank}"
        )
    mean = _Times(control / len(work), test / len(work), growth_counts=not (are_steps and _is_shorter(*length)))
    judged = [_judged(work, mean, pairs, "GPU time", _grown_work)] if control else []
    if are_steps:
        judged.append(
            _judged([_Times(*both) for both in durations], _Times(*length), pairs, "the length", _grown_anywhere)
        )
    broken = [verdict for verdict in judged if verdict.grown > most]
    if broken:
        worst = max(broken, key=lambda verdict: verdict.grown)
        return Judgement(True, False, f"{worst.sentence}, more than {most:g} %; grew most: {worst.blamed}")
    clauses = [*(verdict.sentence for verdict in judged), f"at most {most:g} % allowed"]
    if not are_steps:
        whole = "the control is a whole trace" if pairs[0].pair.test.step is not None else "these are whole traces"
        clauses.append(f"the length is not judged, because {whole}")
    return Judgement(True, True, "; ".join(clauses))


class _Times(NamedTuple):
    """Times of both sides, ns. `growth_counts`: whether growth from `control` to `test` counts."""

    control: float
    test: float
    growth_counts: bool = True

    @property
    def grown(self) -> float:
        """Return the growth that counts, percent."""
        grown = _grown(self.control, self.test)
        return grown if self.growth_counts else min(grown, 0.0)


@dataclass(frozen=True)
class _Judged:
    grown: float
    sentence: str
    blamed: str


def _judged(
    times: Sequence[_Times],
    mean: _Times,
    pairs: Sequence[OnePair],
    subject: str,
    blame: Callable[[OnePair], str],
) -> _Judged:
    """Return the verdict on the worst window and the mean.

    `times`: one item per pair. A window that may be warm-up on one side counts only in the mean, unless all windows may
    be. `subject` names the value. `blame` names the work or event that grew most in a pair.
    """
    candidates = [candidate for candidate in zip(times, pairs, strict=True) if not _may_be_warm_up(candidate[1].pair)]
    longest, worst = max(
        candidates or zip(times, pairs, strict=True),
        key=lambda candidate: (candidate[0].grown, _grown(*candidate[0][:2])),
    )
    window_name = named(worst.pair)
    of_window = f" of {window_name}" if window_name else ""
    text = f"{subject}{of_window} went from {units.time(longest.control)} to {units.time(longest.test)}, {percent(*longest[:2])}"
    if len(times) > 1:
        text += f", the worst of {len(candidates or times)}; the mean {percent(*mean[:2])}"
    blamed = blame(worst)
    if mean.grown > longest.grown:  # due to windows that may be warm-up, or to work that grows little in each window
        growths_ns = [test - control for control, test, _ in times]
        grew_most = pairs[growths_ns.index(max(growths_ns))]
        blamed = blame(grew_most) + (f" in {named(grew_most.pair)}" if grew_most is not worst else "")
    return _Judged(max(longest.grown, mean.grown), text, blamed)


def _may_be_warm_up(pair: Pair) -> bool:
    return any(window.warm_up_times is not None for window in (pair.control, pair.test))


def _is_shorter(control: float, test: float) -> bool:
    return control - test > _UNCHANGED * control


def _is_little(control: float, test: float, window: float) -> bool:
    """Return whether a growth is at most 1 % of the window (all in ns)."""
    return test - control <= _UNCHANGED * window


def _grown(control: float, test: float) -> float:
    return 100 * (test - control) / control if control else (float("inf") if test else 0.0)


def _grown_work(pair: OnePair) -> str:
    return f"{pair.gpu.grown_name} {units.difference(pair.gpu.grown_ns)}"


def _grown_anywhere(pair: OnePair) -> str:
    """Return the name that grew most in a longer step, and its growth.

    If GPU work explains at least half of the growth of the step, this is the name of GPU work. Otherwise it is the name
    of a host event, preceded by a cause if the causes of both sides are known.
    """
    longer_ns = pair.pair.test.duration_ns - pair.pair.control.duration_ns
    if not pair.host.grown_name or pair.gpu.grown_ns >= longer_ns / 2:
        return _grown_work(pair)
    on_host = f"on the host {pair.host.grown_name} {units.difference(pair.host.grown_ns)}"
    causes = pair.causes
    if not causes.grown_name or not (causes.control_ns and causes.test_ns):  # the causes of a side are unknown
        return on_host
    return f"{_TITLES[causes.grown_name]} {units.difference(causes.grown_ns)}; {on_host}"


def named(pair: Pair) -> str:
    """Return the name of a pair's windows, with the rank if there are several.

    Examples are `step 7`, `step 7 of control, 3 of test` and `step 7 of control, the whole trace of test`. If both
    windows are whole traces, they are not named.
    """
    control, test = pair.control.step, pair.test.step
    if control == test:
        windows = "" if control is None else f"step {control}"
    elif control is None:
        windows = f"the whole trace of control, step {test} of test"
    else:
        windows = f"step {control} of control, {'the whole trace' if test is None else test} of test"
    return ", ".join(part for part in (windows, pair.where) if part)
