"""What the fixes of a window save: the rows of `_fix_rows`, by the engine that answers `what-if`."""

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
from pipelines.critical_path.whatif.before_after import Weights
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.critical_path.whatif.timeline import Floats
from pipelines.critical_path.whatif.window import Window

_PERCENT, _SAME_PERCENT = threshold("fix_percent"), threshold("same_stretch_percent")
_COMPARED = 5
"""How many fixes of a window, those with the largest savings, are compared with each other: what a screen shows."""
_HOST = ("host_between_operators", "host_operators", "launching")


@dataclass(frozen=True)
class Fix:
    """A fix, what it is done to, the options of what-if that it is retimed with, whether that is without the profiler's cost, and
    what the window is shorter by, ns. `same_place` and `same_cause`: the larger fix, by its place, or the cause of the host's that
    is the same stretch of time; None where that is not known.
    """

    fix: str
    name: str
    options: str
    without_profiler: bool
    saves: int
    same_place: int | None = None
    same_cause: str | None = None


def fixes(window: Window, rows: Rows, factors: Floats, *, without_profiler: bool = False) -> list[Fix]:
    """Returns what the fixes of a window save, largest first; those that save too little are left out. `factors`: as in `candidates`;
    `without_profiler`: the weights of its graph are without the profiler's cost.
    """
    length = int(rows.duration.sum())
    tried, saves = candidates(window, rows, length, factors), partial(_saves, window, length)
    return judged(tried, saves, length, largest_host_cause(rows, length), without_profiler=without_profiler)


def largest_host_cause(rows: Rows, length: int) -> str | None:
    """Returns the largest cause of the host's, if it takes enough of a length, ns."""
    time = {cause: int(rows.duration[rows.cause == CAUSES.index(cause)].sum()) for cause in _HOST}
    largest = max(time, key=lambda cause: time[cause])
    return largest if 100 * time[largest] >= _PERCENT * length else None


def _saves(window: Window, length: int, scenario: Scenario) -> int:
    weights = Weights.of(window, scenario)
    return length - max(int(window.graph.forward(weights.path).max()), weights.ahead_ns)


Saves = Callable[[Scenario], int]
"""What a scenario saves, ns. Raises NothingMatches where it is of nothing there."""


def judged(
    tried: Iterable[Candidate], saves: Saves, length: int, host_cause: str | None, *, without_profiler: bool = False
) -> list[Fix]:
    """Returns those of some candidates that save enough of a length, ns, largest first. `host_cause`: the largest cause of the host's,
    which a wait for the GPU may take turns with.
    """
    enough = sorted(
        _each_once([one for one in _saving(tried, saves) if 100 * one.saves >= _PERCENT * length], length),
        key=lambda one: (-one.saves, one.candidate.fix, one.candidate.name),
    )
    known: list[Fix] = []
    for place, (candidate, saved) in enumerate(enough):
        same_place = same_cause = None
        if place < _COMPARED:
            same_place = next((i for i in range(place) if _is_same(enough[i], enough[place], saves)), None)
            if host_cause and candidate.fix == "do_not_wait" and same_place is None:
                same_cause = host_cause if _takes_turns(enough[place], host_cause, saves) else None
        words = options(candidate.scenario) + (" --without-profiler" if without_profiler else "")
        known.append(Fix(candidate.fix, candidate.name, words, without_profiler, saved, same_place, same_cause))
    return known


class _Saving(NamedTuple):
    candidate: Candidate
    saves: int


def _saving(tried: Iterable[Candidate], saves: Saves) -> Iterator[_Saving]:
    for candidate in tried:
        with suppress(NothingMatches):
            yield _Saving(candidate, saves(candidate.scenario))


def _each_once(enough: list[_Saving], length: int) -> Iterator[_Saving]:
    """All waits together are a fix where they save more than the largest of them alone, by as much as a fix has to save."""
    of_waits = [one for one in enough if one.candidate.fix == "do_not_wait"]
    alone = max((one.saves for one in of_waits if one.candidate.name != "*"), default=0)
    for one in enough:
        if one.candidate.name != "*" or 100 * (one.saves - alone) >= _PERCENT * length:
            yield one


def _is_same(larger: _Saving, other: _Saving, saves: Saves) -> bool:
    """Whether most of what the smaller of two savings is of cannot be saved twice."""
    both = saves(larger.candidate.scenario.with_more(other.candidate.scenario))
    twice = larger.saves + other.saves - both
    return 100 * twice >= _SAME_PERCENT * min(larger.saves, other.saves)


def _takes_turns(wait: _Saving, host_cause: str, saves: Saves) -> bool:
    """Whether the host works while the GPU has nothing to do, and waits while it has: less of either saves the same."""
    less = Candidate("", "", Scenario(((f"cause:{host_cause}", 0.0),)))
    return _is_same(wait, _Saving(less, saves(less.scenario)), saves)


def options(scenario: Scenario) -> str:
    """Returns the options of what-if for a scenario, quoted for a shell."""
    words = []
    for target, factor in scenario.scale:
        words += ["--remove", target] if factor == 0 else ["--scale", f"{target}={np.format_float_positional(factor)}"]
    words += [word for target in scenario.ahead for word in ("--ahead", target)]
    return shlex.join([*words, *(["--perfect-overlap"] if scenario.perfect_overlap else [])])
