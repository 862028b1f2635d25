"""What a comparison comes to: one sentence, what casts doubt on it, and whether it stays within a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

from pipelines.base import units
from pipelines.base.datafiles import rule_rows, threshold
from pipelines.base.kernel_names import short_name
from pipelines.fleet.trends.comparison import Comparison, Difference, OnePair, Pair, Part, Trace, Window, totals

_TOLD = threshold("compare_unchanged_percent") / 100
_APART = threshold("compare_apart_percent") / 100
_MOST = 5  # kinds of work in a sentence
_NAME = 40  # characters
_NOBODY = ("outside operators", "stream ")
"""How names begin that say no more than their cause."""

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
"""Categories in words; the others are words."""

_BEFORE, _LAUNCHED_BEFORE = "(launch not in the trace)", "work launched before"
_SAID_BY_KIND = ("attention", "communication")
"""Categories that say more than the names of their operators."""
_TITLES = {row["cause"]: row["title"].partition(" (")[0] for row in rule_rows("cause_kinds")}
_WAITING = ("gpu_waiting", "earlier_work", "late_rank", "unknown")
"""Causes that are neither the host's time nor GPU work of the window."""
_NOT_HOST = ("gpu_computing", "copies", "communication", *_WAITING)


def percent(control: float, test: float) -> str:
    """The growth from control to test: `+10.8 %`."""
    if not control:
        return "new" if test else "+0.0 %"
    grown = 100 * (test - control) / control
    return f"{'+' if grown >= 0 else units.MINUS}{abs(grown):,.1f} %"


def sentence(part: Part) -> str:
    """What became of the window, what of its GPU time changed, whether the GPU waits longer for the host, or for something else.

    The length is that of all steps divided by their number, of several ranks the slowest one's; changes are means of all windows.
    What changed by less than 1 % of the window is not told, but in all; unchanged is what changed by less than 1 % of itself.
    """
    control, test = lengths(part.pairs)
    what = "step" if part.pairs[0].control.step is not None else "trace"
    many = _many(part.pairs)
    grown = ", ".join([percent(control, test), *many]) + _in_the_median(part.pairs, test - control, control)
    if abs(test - control) <= _TOLD * control:
        told = f"The {what} takes {units.time(test)}, unchanged ({grown})"
    else:
        told = f"The {what} takes {units.time(test)} instead of {units.time(control)} ({grown})"
    return "; ".join([f"{told}: {_work(part, control)}", _host(part, control), *_waiting(part, control)])


def lengths(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Returns the length of a step, or of the whole trace, on both sides, ns: all of them divided by their number."""
    control, test = map(fmean, zip(*lengths_of_steps(pairs), strict=True))
    return control, test


def lengths_of_steps(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    """Returns the length of each step on both sides, ns: a job's step ends when its slowest rank's does."""
    steps: dict[tuple[int | None, int | None], list[Pair]] = {}
    for pair in pairs:
        steps.setdefault((pair.control.step, pair.test.step), []).append(pair)
    return [
        (max(pair.control.duration_ns for pair in of), max(pair.test.duration_ns for pair in of))
        for of in steps.values()
    ]


def in_words(one: Difference, by: str) -> str:
    """Returns the name of a row for people: categories and causes in words, shapes behind the operator."""
    words = {"category": WORDS, "cause": _TITLES}.get(by, {})
    return words.get(one.name, one.name) + (f" {one.input_dims}" if one.input_dims else "")


def changed_most(part: Part) -> str:
    """Returns what of a part's GPU time changed most, and by how much in the mean of its windows."""
    return f"{units.difference(part.rows[0].diff_ns / len(part.pairs))} {part.rows[0].name}" if part.rows else ""


def _sides(pairs: Sequence[Pair]) -> tuple[list[Window], list[Window]]:
    return [pair.control for pair in pairs], [pair.test for pair in pairs]


def _many(pairs: Sequence[Pair]) -> list[str]:
    """What a length is of: how many steps, and of which of the ranks."""
    steps, places = len(lengths_of_steps(pairs)), len({pair.where for pair in pairs})
    many = [f"mean of {steps} steps"] if steps > 1 else []
    return many + [f"{'of each ' if many else ''}the slowest of {places} ranks"] * (places > 1)


def _in_the_median(pairs: Sequence[Pair], of_mean: float, window: float) -> str:
    """Where the median of the windows changed otherwise than their mean: by how much, and which window changed most."""
    control, test = map(median, zip(*lengths_of_steps(pairs), strict=True))
    if abs(of_mean - (test - control)) <= _APART * window:
        return ""
    changes = [pair.test.duration_ns - pair.control.duration_ns for pair in pairs]
    most = max(range(len(pairs)), key=lambda place: abs(changes[place]))
    which = named(pairs[most])
    said = f"; in the median {units.difference(test - control)}"
    return said + (f", {which} {units.difference(changes[most])}" if which else "")


def _work(part: Part, window: float) -> str:
    control, test = totals(part.categories)
    if not control and not test:
        return "no GPU work"
    if not (control and test):
        return f"no GPU work in {'test' if control else 'control'}"
    if _by_kernels(part):
        means = [(short_name(one.name, _NAME), one.diff_ns / len(part.pairs)) for one in part.rows]
        told = [one for one in means if abs(one[1]) > _TOLD * window]
    else:
        kinds = _kinds_of_work(part).items()
        told = [one for category, work in kinds for one in _told(category, work, len(part.pairs), window)]
    told.sort(key=lambda one: -abs(one[1]))
    if told:
        return ", ".join(f"{name} {units.difference(mean)}" for name, mean in told[:_MOST])
    return f"GPU work {_or_unchanged(control / len(part.pairs), test / len(part.pairs))}"


def _or_unchanged(control: float, test: float) -> str:
    """A change, of which nothing is worth telling beside the window: unchanged is what is within 1 % of itself, as in the rows."""
    return "unchanged" if abs(test - control) <= _TOLD * max(control, test) else units.difference(test - control)


def _by_kernels(part: Part) -> bool:
    """Whether only one side knows the operators of most of its work, and rows are kernels: its categories are none of the other's."""
    every = totals(part.work)
    without = totals(one for one in part.work if one.name.startswith("("))
    lacks = [2 * ns > of_all for ns, of_all in zip(without, every, strict=True)]
    return lacks[0] != lacks[1] and all(one.cat for one in part.rows)


def _kinds_of_work(part: Part) -> dict[str, list[Difference]]:
    """Operators by category; work that was launched before is of its own, unless it is most of a side's."""
    before = totals(one for one in part.work if one.name == _BEFORE)
    apart = all(2 * ns <= of_all for ns, of_all in zip(before, totals(part.work), strict=True))
    found: dict[str, list[Difference]] = {}
    for one in part.work:
        found.setdefault(_LAUNCHED_BEFORE if apart and one.name == _BEFORE else one.cat or "", []).append(one)
    return found


def _told(category: str, work: Sequence[Difference], windows: int, window: float) -> list[tuple[str, float]]:
    """What changed of a category, and by how much in the mean: the operator that is three quarters of it, else itself."""
    mean = sum(one.diff_ns for one in work) / windows
    if abs(mean) <= _TOLD * window:
        return []
    most = max(work, key=lambda one: (abs(one.diff_ns), one.name))
    alone = abs(most.diff_ns / windows - mean) <= abs(mean) / 4 and not most.name.startswith("(")
    if category in _SAID_BY_KIND or not alone:
        return [(WORDS.get(category, category), mean)]
    return [(most.name.rpartition("::")[2], most.diff_ns / windows)]


def _host(part: Part, window: float) -> str:
    """The host's time on the critical path, by its causes; where those are not known, the host as the GPU sees it: how long that
    has nothing to do.
    """
    silent = [side for side, ns in zip(("control", "test"), totals(part.host), strict=True) if part.host and not ns]
    if silent:
        return f"no events of the host in {' and '.join(silent)}"
    if all(totals(part.causes)):
        not_host = (
            _NOT_HOST if any(totals(part.categories)) else _WAITING
        )  # without a GPU, communication is the host's, too
        causes = [one for one in part.causes if one.name not in not_host]
        means = {one.name: one.diff_ns / len(part.pairs) for one in causes}
        told = [_told_cause(part, *one) for one in means.items() if abs(one[1]) > _TOLD * window][:2]
        more = sum(means.values())
        if abs(more) <= _TOLD * window:
            said = f"host {_or_unchanged(*(ns / len(part.pairs) for ns in totals(causes)))}"
            return f"{said} in all: {', '.join(told)}" if told else said
        return f"host {units.difference(more)}" + (f" ({', '.join(told)})" if told else "")
    idle = [(pair.control.idle_ns, pair.test.idle_ns) for pair in part.pairs]
    known = [test - control for control, test in idle if control is not None and test is not None]
    if known:
        more = sum(known) / len(known)
        return "GPU idle unchanged" if abs(more) <= _TOLD * window else f"GPU idle {units.difference(more)}"
    means_of_names = [(one.name, one.diff_ns / len(part.pairs)) for one in part.host]
    told = [f"{name} {units.difference(mean)}" for name, mean in means_of_names if abs(mean) > _TOLD * window]
    return f"host: {', '.join(told[:2])}" if told else "host unchanged"


def _waiting(part: Part, window: float) -> list[str]:
    """What else of the path changed: nobody's time on the host, and no work that the window has."""
    if not all(totals(part.causes)):
        return []
    means = {one.name: one.diff_ns / len(part.pairs) for one in part.causes if one.name in _WAITING}
    return [f"{_TITLES[name]} {units.difference(mean)}" for name, mean in means.items() if abs(mean) > _TOLD * window]


def _told_cause(part: Part, cause: str, mean: float) -> str:
    """A cause and by how much it changed; with its name, where one name is three quarters of that."""
    owners = {one.name: one.diff_ns / len(part.pairs) for one in part.owners if one.cat == cause}
    most = max(owners, key=lambda name: (abs(owners[name]), name), default="")
    alone = most and abs(owners[most] - mean) <= abs(mean) / 4 and not most.startswith(_NOBODY)
    return f"{_TITLES[cause]} {units.difference(mean)}" + (f": {short_name(most, _NAME)}" if alone else "")


def doubts(pairs: Sequence[Pair], control: Sequence[Trace], test: Sequence[Trace]) -> list[str]:
    """Sentences on windows that hold work of before the window, or that are partial."""
    found = []
    for side, traces, windows in zip(("control", "test"), (control, test), _sides(pairs), strict=True):
        earlier, every = (sum(getattr(one, key) for one in windows) for key in ("earlier_ns", "duration_ns"))
        if earlier > _TOLD * every:
            mean = units.time(earlier / len(windows))
            found.append(
                f"{side}: {mean} of the GPU work in its window was launched before it, or its launch is not in the trace"
            )
        cut = {trace.trace_id: trace.file for trace in traces if trace.is_cut}
        found += [
            f"{side}: {name} is cut off, its last step may be partial"
            for trace_id, name in cut.items()
            if trace_id in {window.trace_id for window in windows}
        ]
    return found


@dataclass(frozen=True)
class Judgement:
    """Whether all windows stay within a limit, and the sentence that says so. `is_judged`: there was something to judge."""

    is_judged: bool
    is_fine: bool
    said: str


def judge(comparison: Comparison, most: float) -> Judgement:
    """Judge GPU time, if there is any, and of steps their length: the mean over all windows, and the worst window of test.

    `most`: how much longer test may take, percent. GPU time that grows in a step that became shorter has made nothing slower.
    """
    pairs = comparison.pairs
    are_steps = pairs[0].pair.control.step is not None
    durations = [(one.pair.control.duration_ns, one.pair.test.duration_ns) for one in pairs]
    length = lengths([one.pair for one in pairs])
    work = [
        _Times(one.gpu.control_ns, one.gpu.test_ns, are_steps and _is_shorter(*both))
        for one, both in zip(pairs, durations, strict=True)
    ]
    control, test = sum(one.control for one in work), sum(one.test for one in work)
    if not control and (test or not are_steps):
        what = "GPU time" if test else "GPU time and the length of steps"
        return Judgement(False, False, f"--fail-on compares {what}, and the control has none in what is compared")
    mean = _Times(control / len(work), test / len(work), are_steps and _is_shorter(*length))
    judged = [_judged(work, mean, pairs, "GPU time", _grown_work)] if control else []
    if are_steps:
        judged.append(
            _judged([_Times(*both) for both in durations], _Times(*length), pairs, "the length", _grown_anywhere)
        )
    broken = [one for one in judged if one.grown > most]
    if broken:
        worst = max(broken, key=lambda one: one.grown)
        return Judgement(True, False, f"{worst.said}, more than {most:g} %; grew most: {worst.blamed}")
    return Judgement(True, True, f"{'; '.join(one.said for one in judged)}; at most {most:g} % allowed")


class _Times(NamedTuple):
    """Times of both sides, ns; of GPU time also whether its step became shorter."""

    control: float
    test: float
    in_a_shorter_step: bool = False

    @property
    def grown(self) -> float:
        """By how much, percent, as far as that counts."""
        grown = _grown(self.control, self.test)
        return min(grown, 0.0) if self.in_a_shorter_step else grown


@dataclass(frozen=True)
class _Judged:
    grown: float
    said: str
    blamed: str


def _judged(
    times: Sequence[_Times],
    mean: _Times,
    pairs: Sequence[OnePair],
    what: str,
    blame: Callable[[OnePair], str],
) -> _Judged:
    """The worst of the windows, whose times in control and test are given, and their `mean`. What may be warm-up on one side is
    judged in the mean alone.
    """
    alone = [one for one in zip(times, pairs, strict=True) if not _may_be_warm_up(one[1].pair)]
    longest, worst = max(alone or zip(times, pairs, strict=True), key=lambda one: (one[0].grown, _grown(*one[0][:2])))
    which = named(worst.pair)
    of = f" of {which}" if which else ""
    said = f"{what}{of} went from {units.time(longest.control)} to {units.time(longest.test)}, {percent(*longest[:2])}"
    if len(times) > 1:
        said += f", the worst of {len(alone or times)}; the mean {percent(*mean[:2])}"
    return _Judged(max(longest.grown, mean.grown), said, blame(worst))


def _may_be_warm_up(pair: Pair) -> bool:
    return any(one.warm_up_times is not None for one in (pair.control, pair.test))


def _is_shorter(control: float, test: float) -> bool:
    return control - test > _TOLD * control


def _grown(control: float, test: float) -> float:
    return 100 * (test - control) / control if control else (float("inf") if test else 0.0)


def _grown_work(one: OnePair) -> str:
    return f"{one.gpu.grown_name} {units.difference(one.gpu.grown_ns)}"


def _grown_anywhere(one: OnePair) -> str:
    """What grew most in a longer step: of its GPU time or, where that explains less than half, of the host, and of its causes."""
    longer = one.pair.test.duration_ns - one.pair.control.duration_ns
    if not one.host.grown_name or one.gpu.grown_ns >= longer / 2:
        return _grown_work(one)
    said = f"on the host {one.host.grown_name} {units.difference(one.host.grown_ns)}"
    causes = one.causes
    if not causes.grown_name or not (causes.control_ns and causes.test_ns):  # not known of both
        return said
    return f"{_TITLES[causes.grown_name]} {units.difference(causes.grown_ns)}; {said}"


def named(pair: Pair) -> str:
    """Returns which windows these are: `step 7`, `step 7 of control, 3 of test`, and of which rank, if there are several."""
    control, test = pair.control.step, pair.test.step
    step = (
        ""
        if control is None
        else f"step {control}"
        if control == test
        else f"step {control} of control, {test} of test"
    )
    return ", ".join(one for one in (step, pair.where) if one)
