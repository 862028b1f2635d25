"""The savings of a window's fixes: the rows of `_fix_rows`, computed by the engine that answers `what-if`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.edge_causes import CAUSES
from pipelines.critical_path.causes.fix_candidates import Candidate, candidates
from pipelines.critical_path.causes.removed import Removed
from pipelines.critical_path.causes.savings import Rows
from pipelines.critical_path.causes.window_rows import NameFacts
from pipelines.critical_path.whatif.before_after import Weights
from pipelines.critical_path.whatif.scenario import Scenario, ScenarioError
from pipelines.critical_path.whatif.shared_gpu import overlap_percent, overlapping_streams
from pipelines.critical_path.whatif.targets import NothingMatches, change_of
from pipelines.critical_path.whatif.window import Window

_PERCENT, _SAME_PERCENT = threshold("fix_percent"), threshold("same_stretch_percent")
_COMPARED = 5
"""How many fixes of a window, those with the largest savings, are compared with each other. A screen shows this many.
"""
_ALL_WAITS = ("wait:*",)
_HOST = ("host_between_operators", "host_operators", "launching")


@dataclass(frozen=True)
class Fix:
    """A fix with its savings.

    `name` is the fix's target, `options` are the options of what-if that retime it, `without_profiler` is whether that
    is without the profiler's cost. `saves` is how much shorter the window gets, ns. `same_place` is the index of the
    larger fix to which this one is an alternative, `same_cause` the host's cause to which it is. Both are None if there
    is none or it is unknown. `caveat` is a caveat about `saves` in addition to that of the fix's kind, or None.
    """

    fix: str
    name: str
    options: str
    without_profiler: bool
    saves: int
    same_place: int | None = None
    same_cause: str | None = None
    caveat: str | None = None


def fixes(window: Window, rows: Rows, facts: NameFacts, *, without_profiler: bool = False) -> list[Fix]:
    """Return the savings of the fixes of a window, largest first, without fixes that save too little.

    `facts` is as in `candidates`. `without_profiler` states that the weights of the window's graph are without the
    profiler's cost.
    """
    length = int(rows.duration.sum())
    tried, host_cause = candidates(window, rows, length, facts), largest_host_cause(rows, length)
    saves, removes, caveat = partial(_saves, window, length), partial(_removes, window), partial(_caveat, window)
    return judged(tried, saves, removes, caveat, length, host_cause, without_profiler=without_profiler)


def largest_host_cause(rows: Rows, length: int) -> str | None:
    """Return the largest of the host's causes, or None if it takes too little of a length, ns."""
    time = {cause: int(rows.duration[rows.cause == CAUSES.index(cause)].sum()) for cause in _HOST}
    largest = max(time, key=lambda cause: time[cause])
    return largest if 100 * time[largest] >= _PERCENT * length else None


def _saves(window: Window, length: int, scenario: Scenario) -> int:
    weights = Weights.of(window, scenario)
    return length - max(int(window.graph.forward(weights.path).max()), weights.ahead_ns)


def _removes(window: Window, scenario: Scenario) -> Removed:
    return Removed.by(change_of(window, scenario), window.graph, window.timeline.dst_ns)


def _caveat(window: Window, scenario: Scenario) -> str | None:
    if not overlap_percent(window):  # so that the scenario is not applied again
        return None
    caveats = overlapping_streams(window, change_of(window, scenario).factor != 1)
    return caveats[0]["detail"] if caveats else None


Saves = Callable[[Scenario], int]
"""Returns the savings of a scenario, ns. Raises NothingMatches if the scenario selects nothing."""
Removes = Callable[[Scenario], Removed]
"""Returns what a scenario removes."""
Caveat = Callable[[Scenario], str | None]
"""Returns the caveat about the savings of a scenario in this window or capture, or None."""


def judged(
    tried: Iterable[Candidate],
    saves: Saves,
    removes: Removes,
    caveat: Caveat,
    length: int,
    host_cause: str | None,
    *,
    without_profiler: bool = False,
) -> list[Fix]:
    """Return the candidates that save enough of a length (ns), largest first, one of each change.

    The savings of fixes that are alternatives to no larger one add up to at most the length. `host_cause` is the
    largest of the host's causes, with which a wait for the GPU may alternate.
    """
    enough = sorted(
        (saving for saving in _saving(tried, saves) if 100 * saving.saves >= _PERCENT * length),
        key=lambda saving: (-saving.saves, saving.candidate.fix, saving.candidate.name),
    )
    merged = _merged(enough, removes, length)
    results: list[Fix] = []
    for index, same_place in enumerate(_alternatives(merged, saves, length)):
        candidate, saved = merged[index]
        same_cause = None
        if index < _COMPARED and host_cause and candidate.fix == "do_not_wait" and same_place is None:
            same_cause = host_cause if _takes_turns(merged[index], host_cause, saves) else None
        words = options(candidate.scenario) + (" --without-profiler" if without_profiler else "")
        limits = caveat(candidate.scenario)
        results.append(
            Fix(candidate.fix, candidate.name, words, without_profiler, saved, same_place, same_cause, limits)
        )
    return results


class _Saving(NamedTuple):
    candidate: Candidate
    saves: int


def _saving(tried: Iterable[Candidate], saves: Saves) -> Iterator[_Saving]:
    for candidate in tried:
        with suppress(NothingMatches, ScenarioError):  # a fix that cannot be judged is absent
            yield _Saving(candidate, saves(candidate.scenario))


def _merged(enough: Sequence[_Saving], removes: Removes, length: int) -> list[_Saving]:
    """Return the savings, of practically the same changes one.

    Two changes of a kind are practically the same if each is nested in the other, such as those of a function and of
    one that is nearly all of it.
    """
    kept: list[_Saving] = []
    for kind in dict.fromkeys(saving.candidate.fix for saving in enough):
        of_kind = [saving for saving in enough if saving.candidate.fix == kind]
        kept += _distinct(of_kind, removes, length) if len(of_kind) > 1 else of_kind
    return [saving for saving in enough if saving in kept]


def _distinct(of_kind: Sequence[_Saving], removes: Removes, length: int) -> list[_Saving]:
    """Return the savings of a kind without those that are practically the same change as another one.

    Of these, the one that removes more remains if it saves more by as much as a fix has to save, else the other, which
    is more specific. Single waits remain beside all waits, which no line of a program has.
    """
    removed = {saving: removes(saving.candidate.scenario) for saving in of_kind}
    kept: list[_Saving] = []
    for saving in sorted(of_kind, key=lambda saving: (_is_of_all_waits(saving), removed[saving].total_ns)):
        is_of_all = _is_of_all_waits(saving)
        same = [other for other in kept if is_of_all or removed[saving].is_same(removed[other])]
        if all(100 * (saving.saves - other.saves) >= _PERCENT * length for other in same):
            kept = [*(other for other in kept if is_of_all or other not in same), saving]
    return kept


def _is_of_all_waits(saving: _Saving) -> bool:
    return saving.candidate.scenario.targets == _ALL_WAITS


def _alternatives(merged: Sequence[_Saving], saves: Saves, length: int) -> Iterator[int | None]:
    """Yield for each of the savings the index of a larger one to which it is an alternative, or None.

    It is one if it saves mostly the same time, or if savings that are no alternatives would add up to more than the
    length: then it is an alternative to the one with which it shares most, or to the largest if it shares with none.
    """
    added_up = 0
    for index, saving in enumerate(merged):
        twice = cache(partial(_twice, other=saving, saves=saves))
        larger: int | None = None
        if index < _COMPARED:
            larger = next((i for i in range(index) if _is_most(twice(merged[i]), merged[i], saving)), None)
        if larger is None and index > 0 and added_up + saving.saves > length:
            larger = max(range(index), key=lambda i: max(twice(merged[i]), 0))
        added_up += saving.saves if larger is None else 0
        yield larger


def _is_most(twice: int, larger: _Saving, other: _Saving) -> bool:
    """Whether a time is most of the smaller of two savings."""
    return 100 * twice >= _SAME_PERCENT * min(larger.saves, other.saves)


def _twice(larger: _Saving, other: _Saving, saves: Saves) -> int:
    """Return how much of two savings cannot be saved twice, ns."""
    return larger.saves + other.saves - saves(larger.candidate.scenario.with_more(other.candidate.scenario))


def _takes_turns(wait: _Saving, host_cause: str, saves: Saves) -> bool:
    """Whether the host works while the GPU is idle, and waits while the GPU works.

    Then less of either saves the same time.
    """
    scenario = Scenario(((f"cause:{host_cause}", 0.0),))
    less = _Saving(Candidate("", "", scenario), saves(scenario))
    return _is_most(_twice(wait, less, saves), wait, less)


def options(scenario: Scenario) -> str:
    """Return the options of what-if for a scenario, quoted for a shell."""
    words = []
    for target, factor in scenario.scale:
        number = np.format_float_positional(factor, trim="-")
        words += ["--scale", f"{target}={number}"] if factor else ["--remove", target]
    words += [word for target in scenario.ahead for word in ("--ahead", target)]
    return shlex.join([*words, *(["--perfect-overlap"] if scenario.perfect_overlap else [])])
