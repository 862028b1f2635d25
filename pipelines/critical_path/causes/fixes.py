"""What the fixes of a window save: the rows of `_fix_rows`, by the engine that answers `what-if`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.fix_candidates import Candidate, candidates
from pipelines.critical_path.causes.savings import Rows
from pipelines.critical_path.whatif.before_after import Weights
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.critical_path.whatif.timeline import Floats
from pipelines.critical_path.whatif.window import Window

_PERCENT = threshold("fix_percent")


@dataclass(frozen=True)
class Fix:
    """A fix, what it is done to, the options of what-if that it is retimed with, whether that is without the profiler's cost, and
    what the window is shorter by, ns.
    """

    fix: str
    name: str
    options: str
    without_profiler: bool
    saves: int


def fixes(window: Window, rows: Rows, factors: Floats, *, without_profiler: bool = False) -> list[Fix]:
    """Returns what the fixes of a window save, largest first; those that save too little are left out. `factors`: as in `candidates`;
    `without_profiler`: the weights of its graph are without the profiler's cost.
    """
    length = int(rows.duration.sum())
    judged = []
    for candidate in candidates(window, rows, factors):
        saves = _saves(window, candidate, length)
        if saves is not None and 100 * saves >= _PERCENT * length:
            words = options(candidate.scenario) + (" --without-profiler" if without_profiler else "")
            judged.append(Fix(candidate.fix, candidate.name, words, without_profiler, saves))
    return sorted(_each_once(judged, length), key=lambda fix: (-fix.saves, fix.fix, fix.name))


def _saves(window: Window, candidate: Candidate, length: int) -> int | None:
    try:
        weights = Weights.of(window, candidate.scenario)
    except NothingMatches:
        return None
    return length - max(int(window.graph.forward(weights.path).max()), weights.ahead_ns)


def _each_once(judged: list[Fix], length: int) -> Iterator[Fix]:
    """All waits together are a fix where they save more than the largest of them alone, by as much as a fix has to save."""
    alone = max((fix.saves for fix in judged if fix.fix == "do_not_wait" and fix.name != "*"), default=0)
    for fix in judged:
        if fix.name != "*" or 100 * (fix.saves - alone) >= _PERCENT * length:
            yield fix


def options(scenario: Scenario) -> str:
    """Returns the options of what-if for a scenario, quoted for a shell."""
    words = []
    for target, factor in scenario.scale:
        words += ["--remove", target] if factor == 0 else ["--scale", f"{target}={np.format_float_positional(factor)}"]
    words += [word for target in scenario.ahead for word in ("--ahead", target)]
    return shlex.join([*words, *(["--perfect-overlap"] if scenario.perfect_overlap else [])])
