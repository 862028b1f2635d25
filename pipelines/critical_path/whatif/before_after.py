"""The path of a window under a scenario, compared with the actual path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.shared_gpu import overlapping_streams
from pipelines.critical_path.whatif.targets import change_of
from pipelines.critical_path.whatif.trace_gaps import idle_gaps, long_gaps, unseen_waits
from pipelines.critical_path.whatif.window import Window


@dataclass(frozen=True)
class Weights:
    """The weights of the edges (m,), ns.

    `path` are the weights for the longest path, and `summary` the weights for its summary. `ahead_ns` is the duration
    of the work done concurrently with the window, and a lower bound on the window's length.
    """

    path: npt.NDArray[np.int64]
    summary: npt.NDArray[np.int64]
    ahead_ns: int = 0

    @classmethod
    def of(cls, window: Window, scenario: Scenario) -> Weights:
        """Return the window's weights under a scenario, rounded to integer ns.

        Raises NothingMatches and ScenarioError.
        """
        path, summary = window.graph.weight, window.duration
        if not scenario:
            return cls(path, summary)
        change = change_of(window, scenario)
        changed = change.of(path, window.graph.dst)
        other = changed if summary is path else change.of(summary, window.graph.dst)
        return cls(changed, other, change.ahead_ns)


@dataclass(frozen=True)
class Path:
    """The longest path of a window under some weights. `edges` are indices into the graph's edge arrays, in order."""

    window: Window
    weights: Weights
    edges: Ints

    @classmethod
    def under(cls, window: Window, weights: Weights) -> Path:
        """Find the longest path. Raises GraphHasCycle."""
        return cls(window, weights, window.graph.path(weights.path))

    @property
    def path_us(self) -> float:
        """Return the sum of the path's weights, us."""
        return int(self.weights.path[self.edges].sum()) / 1000

    @property
    def length_us(self) -> float:
        """Return the length of the path, us, or the duration of the work done ahead if that is longer."""
        return max(self.path_us, self.weights.ahead_ns / 1000)

    @property
    def long_gaps(self) -> Ints:
        """Return the path's edges that are gaps of over 1 ms, in which events may be missing from the trace."""
        return long_gaps(self.window, self.edges, self.weights.path)

    @property
    def idle_gaps(self) -> list[dict[str, Any]]:
        """Return the caveat about long gaps, if they are a large part of the path."""
        return idle_gaps(self.window, self.long_gaps, self.weights.path, self.length_us)

    @property
    def summary(self) -> dict[str, float | None]:
        """Return the percentage of the path's time by bound, largest first, as in table `critical_path_summary`."""
        bound, time = self.window.bound[self.edges], self.weights.summary[self.edges]
        sums = np.bincount(bound, time, minlength=len(self.window.bounds)).tolist()
        rows = sorted((-sums[i], self.window.bounds[i]) for i in np.unique(bound))
        total = sum(sums)
        return {label: -100.0 * time / total if total else None for time, label in rows}

    @cached_property
    def touched(self) -> npt.NDArray[np.bool_]:
        """Return whether the path contains the start, the end, or the self time of each event (k,).

        The time of an operator between two of its calls may be on a path that contains neither of its ends.
        """
        is_touched = np.zeros(len(self.window.events.event_id), dtype=bool)
        is_touched[self.window.src_event[self.edges]] = True
        is_touched[self.window.dst_event[self.edges]] = True
        is_touched[self.time_of > 0] = True
        return is_touched

    @cached_property
    def time_of(self) -> Ints:
        """Return the time on the path that is attributed to each event, ns (k,)."""
        owner = self.window.owner[self.edges]
        is_owned, n = owner >= 0, len(self.window.events.event_id)
        return np.bincount(owner[is_owned], self.weights.path[self.edges][is_owned], minlength=n).astype(np.int64)

    def as_json(self) -> dict[str, Any]:
        """Return length (us) and summary (percent)."""
        return {"length_us": self.length_us, "summary": self.summary}


@dataclass(frozen=True)
class Comparison:
    """The answer for a scenario: the path before and after the change.

    The time (us) of an event that entered or left the path is its time on the path that contains it.
    """

    scenario: Scenario
    before: Path
    after: Path

    @property
    def entered(self) -> list[dict[str, Any]]:
        """Return the events that are on the path only after the change, most time first."""
        return _events(self.after, self.before)

    @property
    def left(self) -> list[dict[str, Any]]:
        """Return the events that are on the path only before the change, most time first."""
        return _events(self.before, self.after)

    @cached_property
    def caveats(self) -> list[dict[str, Any]]:
        """Return the caveats about the gain.

        Caveats are waits that are missing from the trace, gains in gaps in which events may be missing, and changed GPU
        work in a window whose streams overlap.
        """
        window, before, after = self.before.window, self.before.weights.path, self.after.weights.path
        gaps = self.before.long_gaps
        shorter = after[gaps] < before[gaps]
        return [
            *unseen_waits(window),
            *(self.before.idle_gaps if shorter.any() else []),
            *overlapping_streams(window, after != before),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "entered": self.entered,
            "left": self.left,
            "inferred_waits": self.before.window.n_inferred,
            "caveats": self.caveats,
        }


def _events(on: Path, off: Path) -> list[dict[str, Any]]:
    indices = np.flatnonzero(on.touched & ~off.touched)
    indices = indices[np.argsort(-on.time_of[indices], kind="stable")]
    events = on.window.events
    ids, families, times = (column[indices].tolist() for column in (events.event_id, events.family, on.time_of))
    names = [name for _, name in events.families]
    return [
        {"event_id": event, "name": names[family], "time_us": time / 1000}
        for event, family, time in zip(ids, families, times, strict=True)
    ]


def what_if(window: Window, scenarios: Iterable[Scenario]) -> Iterator[Comparison]:
    """Compare each scenario with the actual window. The graph is sorted once for all scenarios.

    Raises GraphHasCycle, NothingMatches and ScenarioError.
    """
    before = Path.under(window, Weights.of(window, Scenario()))
    for scenario in scenarios:
        yield Comparison(scenario, before, Path.under(window, Weights.of(window, scenario)))
