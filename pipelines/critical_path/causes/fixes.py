"""The savings of a window's fixes (rows of `_fix_rows`), computed by the engine that answers `what-if`."""

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
"""Number of fixes of a window, largest savings first, that are compared with each other. A screen shows this many."""
_ALL_WAITS = ("wait:*",)
_HOST = ("host_between_operators", "host_operators", "launching")


@dataclass(frozen=True)
class Fix:
    """A fix with its savings.

    `name` is the fix's target, and `options` are the options of what-if that retime it. `without_profiler` is whether
    the window is retimed without the profiler's cost. `saves` is how much shorter the window gets, ns. `same_place` is
    the index of a larger fix to which this fix is an alternative. `same_cause` is a cause on the host to which this fix
    is an alternative. Both are None if there is none or it is unknown. `caveat` is a caveat about `saves` in addition
    to the caveat of the fix's kind, or None.
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
    """Return the fixes of a window with their savings, largest first, without fixes that save too little.

    `facts` is as in `candidates`. `without_profiler`: the weights of the window's graph exclude the profiler's cost.
    """
    length = int(rows.duration.sum())
    tried, host_cause = candidates(window, rows, length, facts), largest_host_cause(rows, length)
    saves, removes, caveat = partial(_saves, window, length), partial(_removes, window), partial(_caveat, window)
    return judged(tried, saves, removes, caveat, length, host_cause, without_profiler=without_profiler)


def largest_host_cause(rows: Rows, length: int) -> str | None:
    """Return the largest cause on the host, or None if this cause takes too little of the path's `length` (ns)."""
    time = {cause: int(rows.duration[rows.cause == CAUSES.index(cause)].sum()) for cause in _HOST}
    largest = max(time, key=lambda cause: time[cause])
    return largest if 100 * time[largest] >= _PERCENT * length else None


def _saves(window: Window, length: int, scenario: Scenario) -> int:
    weights = Weights.of(window, scenario)
    return length - max(int(window.graph.forward(weights.path).max()), weights.ahead_ns)


def _removes(window: Window, scenario: Scenario) -> Removed:
    return Removed.by(change_of(window, scenario), window.graph, window.timeline.dst_ns)


def _caveat(window: Window, scenario: Scenario) -> str | None:
    if not overlap_percent(window):  # avoid applying the scenario a second time
        return None
    caveats = overlapping_streams(window, change_of(window, scenario).factor != 1)
    return caveats[0]["detail"] if caveats else None


Saves = Callable[[Scenario], int]
"""Returns the savings of a scenario, ns. Raises NothingMatches if the scenario selects nothing."""
Removes = Callable[[Scenario], Removed]
"""Returns the time and the waits that a scenario removes."""
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
    """Return the candidates that save enough of `length` (ns), largest first, without near-duplicates.

    The savings of fixes that are not an alternative to a larger fix add up to at most `length`. `host_cause` is the
    largest cause on the host. Removing a wait for the GPU may save the same time as removing this cause.
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
        with suppress(NothingMatches, ScenarioError):  # skip a fix that cannot be retimed
            yield _Saving(candidate, saves(candidate.scenario))


def _merged(enough: Sequence[_Saving], removes: Removes, length: int) -> list[_Saving]:
    """Return the savings without near-duplicates, which are practically the same change.

    Two changes of a kind are practically the same if each is nested in the other. An example is a function, and a
    function inside it that takes nearly all of its time.
    """
    kept: list[_Saving] = []
    for kind in dict.fromkeys(saving.candidate.fix for saving in enough):
        of_kind = [saving for saving in enough if saving.candidate.fix == kind]
        kept += _distinct(of_kind, removes, length) if len(of_kind) > 1 else of_kind
    return [saving for saving in enough if saving in kept]


def _distinct(of_kind: Sequence[_Saving], removes: Removes, length: int) -> list[_Saving]:
    """Return the savings of a kind without near-duplicates.

    Of two near-duplicates, the larger change remains only if it saves more by at least `fix_percent`. Otherwise, the
    smaller change remains, because it is more specific. Fixes of single waits remain next to the fix of all waits,
    because no single line of a program causes all waits.
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
    """Yield for each fix the index of a larger fix to which it is an alternative, or None.

    A fix is an alternative to a larger fix if both save mostly the same time. A fix is also an alternative if the
    savings of all earlier fixes that are not alternatives, together with its own savings, exceed `length`. In this
    case, it is an alternative to the fix with which it shares the most time, or to the largest fix if it shares time
    with none.
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
    """Return whether `twice`, the time that both of two fixes save, is most of the smaller of their savings."""
    return 100 * twice >= _SAME_PERCENT * min(larger.saves, other.saves)


def _twice(larger: _Saving, other: _Saving, saves: Saves) -> int:
    """Return the time that both fixes save, ns: the sum of their savings minus the savings of both together."""
    return larger.saves + other.saves - saves(larger.candidate.scenario.with_more(other.candidate.scenario))


def _takes_turns(wait: _Saving, host_cause: str, saves: Saves) -> bool:
    """Return whether the host works while the GPU is idle, and waits while the GPU works.

    This is the case if removing the wait and removing the host's work (`host_cause`) save mostly the same time.
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
