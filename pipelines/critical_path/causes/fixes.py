"""The savings of a window's fixes: the rows of `_fix_rows`, computed by the engine that answers `what-if`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.edge_causes import CAUSES
from pipelines.critical_path.causes.fix_candidates import Candidate, candidates
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
_HOST = ("host_between_operators", "host_operators", "launching")


@dataclass(frozen=True)
class Fix:
    """A fix with its savings.

    `name` is the fix's target, `options` are the options of what-if that retime it, `without_profiler` is whether that
    is without the profiler's cost. `saves` is how much shorter the window gets, ns. `same_place` is the index of the
    larger fix that saves the same time, `same_cause` the host's cause that does. Both are None if there is none or it
    is unknown. `caveat` is a caveat about `saves` in addition to that of the fix's kind, or None.
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
    tried, saves = candidates(window, rows, length, facts), partial(_saves, window, length)
    host_cause = largest_host_cause(rows, length)
    return judged(tried, saves, partial(_caveat, window), length, host_cause, without_profiler=without_profiler)


def largest_host_cause(rows: Rows, length: int) -> str | None:
    """Return the largest of the host's causes, or None if it takes too little of a length, ns."""
    time = {cause: int(rows.duration[rows.cause == CAUSES.index(cause)].sum()) for cause in _HOST}
    largest = max(time, key=lambda cause: time[cause])
    return largest if 100 * time[largest] >= _PERCENT * length else None


def _saves(window: Window, length: int, scenario: Scenario) -> int:
    weights = Weights.of(window, scenario)
    return length - max(int(window.graph.forward(weights.path).max()), weights.ahead_ns)


def _caveat(window: Window, scenario: Scenario) -> str | None:
    if not overlap_percent(window):  # so that the scenario is not applied again
        return None
    caveats = overlapping_streams(window, change_of(window, scenario).factor != 1)
    return caveats[0]["detail"] if caveats else None


Saves = Callable[[Scenario], int]
"""Returns the savings of a scenario, ns. Raises NothingMatches if the scenario selects nothing."""
Caveat = Callable[[Scenario], str | None]
"""Returns the caveat about the savings of a scenario in this window or capture, or None."""


def judged(
    tried: Iterable[Candidate],
    saves: Saves,
    caveat: Caveat,
    length: int,
    host_cause: str | None,
    *,
    without_profiler: bool = False,
) -> list[Fix]:
    """Return the candidates that save enough of a length (ns), largest first.

    `host_cause` is the largest of the host's causes, with which a wait for the GPU may alternate.
    """
    enough = sorted(
        _each_once([saving for saving in _saving(tried, saves) if 100 * saving.saves >= _PERCENT * length], length),
        key=lambda saving: (-saving.saves, saving.candidate.fix, saving.candidate.name),
    )
    results: list[Fix] = []
    for index, (candidate, saved) in enumerate(enough):
        same_place = same_cause = None
        if index < _COMPARED:
            same_place = next((i for i in range(index) if _is_same(enough[i], enough[index], saves)), None)
            if host_cause and candidate.fix == "do_not_wait" and same_place is None:
                same_cause = host_cause if _takes_turns(enough[index], host_cause, saves) else None
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


def _each_once(enough: list[_Saving], length: int) -> Iterator[_Saving]:
    """Yield the savings, without the fix for all waits if it saves little more than the largest wait alone.

    The difference has to be as large as the savings of a fix.
    """
    of_waits = [saving for saving in enough if saving.candidate.fix == "do_not_wait"]
    alone = max((saving.saves for saving in of_waits if saving.candidate.name != "*"), default=0)
    for saving in enough:
        if saving.candidate.name != "*" or 100 * (saving.saves - alone) >= _PERCENT * length:
            yield saving


def _is_same(larger: _Saving, other: _Saving, saves: Saves) -> bool:
    """Whether most of the smaller of two savings cannot be saved twice."""
    both = saves(larger.candidate.scenario.with_more(other.candidate.scenario))
    twice = larger.saves + other.saves - both
    return 100 * twice >= _SAME_PERCENT * min(larger.saves, other.saves)


def _takes_turns(wait: _Saving, host_cause: str, saves: Saves) -> bool:
    """Whether the host works while the GPU is idle, and waits while the GPU works.

    Then less of either saves the same time.
    """
    less = Candidate("", "", Scenario(((f"cause:{host_cause}", 0.0),)))
    return _is_same(wait, _Saving(less, saves(less.scenario)), saves)


def options(scenario: Scenario) -> str:
    """Return the options of what-if for a scenario, quoted for a shell."""
    words = []
    for target, factor in scenario.scale:
        words += ["--remove", target] if factor == 0 else ["--scale", f"{target}={np.format_float_positional(factor)}"]
    words += [word for target in scenario.ahead for word in ("--ahead", target)]
    return shlex.join([*words, *(["--perfect-overlap"] if scenario.perfect_overlap else [])])
