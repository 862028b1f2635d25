"""Sensitivity: how much shorter a window gets if a kernel, an operator, a gap or a wait takes less time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.bounds import CPU, HOST
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.skippable_models import CALL_SUFFIXES
from pipelines.critical_path.whatif.before_after import Path, Weights
from pipelines.critical_path.whatif.change import Change, Selection
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import EARLIER_WORK, Window

CUTS = (10, 50, 100)
"""Percentages by which the time of each family is reduced."""
GAP = "GAP"
"""The class of delays, gaps and waits, named by the type of their edges."""
ONLY_WAITS = frozenset(
    row["name"] + suffix for row in rule_rows("call_roles") if row["role"] == "only_waits" for suffix in CALL_SUFFIXES
)
"""Calls that only wait for the GPU. They end when GPU work ends, so they cannot be made faster."""


@dataclass(frozen=True)
class Family:
    """Events of one class and name, or edges of one type (class GAP). Times are in us.

    `total_us` is their self time in the graph, `on_path_us` the part of it on the actual path. `change_us` is the
    change of the window's length by percentage of reduction. Calls that only wait change nothing, because only faster
    GPU work shortens them. Host time outside operators (class HOST) belongs to its displayed owner, or to its thread if
    it has no owner.
    """

    kernel_class: str
    name: str
    events: int
    total_us: float
    on_path_us: float
    change_us: dict[int, float]
    only_waits: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return a row of `--sensitivity --json`."""
        return {
            "class": self.kernel_class,
            "name": self.name,
            "events": self.events,
            "total_us": self.total_us,
            "on_path_us": self.on_path_us,
            "change_us": {f"-{cut}%": change for cut, change in self.change_us.items()},
            "only_waits": self.only_waits,
        }


def rank_families(window: Window, *, with_cpu: bool = False) -> list[Family]:
    """Return every family of kernels, largest gain first.

    `with_cpu` adds the families of CPU events, host time outside operators, delays, gaps and waits. A family changes as
    in a scenario that scales it. Only families with time on the path are recomputed, because the others do not change
    the window's length. Raises GraphHasCycle.
    """
    before = Path.under(window, Weights.of(window, Scenario()))
    base = window.graph.weight
    length = int(base[before.edges].sum())
    names, family = _families(window)
    n = len(names)
    count = _counts(window, family, n)
    total = np.bincount(family, base, minlength=n + 1)
    on_path = np.bincount(family[before.edges], base[before.edges], minlength=n + 1)
    ranked = []
    for i, (kernel_class, name) in enumerate(names):
        if (kernel_class in (CPU, HOST, GAP) and not with_cpu) or not count[i]:
            continue
        change: dict[int, float] = dict.fromkeys(CUTS, 0.0)
        only_waits = kernel_class == CPU and name in ONLY_WAITS
        if on_path[i] > 0 and not only_waits:
            selection = _selection(window, i, kernel_class, family)
            change.update((cut, (_length(window, selection, cut) - length) / 1000) for cut in CUTS)
        total_us, on_path_us = float(total[i]) / 1000, float(on_path[i]) / 1000
        ranked.append(Family(kernel_class, name, int(count[i]), total_us, on_path_us, change, only_waits))
    return sorted(ranked, key=lambda f: (f.change_us[100], f.change_us[50], f.change_us[10], -f.total_us, f.name))


def _families(window: Window) -> tuple[list[tuple[str, str]], Ints]:
    """Return class and name of each family, and for each edge the index of its family.

    The index is `len(families)` for edges that only order nodes.
    """
    of_events, events, n_edges = window.events.families, window.events, len(window.kind)
    threads = [(HOST, name) for name in window.thread_names]
    types = [(GAP, name.lower()) for name in window.kinds]
    names = [*of_events, *threads, *types]
    family = np.where(window.family < len(of_events), window.family, len(names))
    owned = window.gap_owner < len(events.event_id)
    owner_index = np.append(np.where(events.shown < 0, np.arange(len(events.shown)), events.shown), -1)
    family = np.where(owned, np.append(events.family, 0)[owner_index[window.gap_owner]], family)
    unowned = window.gap_thread < len(threads)
    family = np.where(unowned, len(of_events) + window.gap_thread, family)
    timed = [
        i for i, kind in enumerate(window.kinds)
        if kind == EARLIER_WORK or (kind in EDGE_TYPES and not EDGE_TYPES[kind].is_own_time)
    ]  # fmt: skip
    is_timed = (family == len(names)) & np.isin(window.kind, timed) & (window.graph.weight > 0)
    assert len(family) == n_edges
    return names, np.where(is_timed, len(of_events) + len(threads) + window.kind, family)


def _counts(window: Window, family: Ints, n: int) -> Ints:
    """Return the number of events of each family, and for gaps the number of edges."""
    of_events = len(window.events.families)
    count = np.bincount(family, minlength=n + 1)[:n]
    count[:of_events] = np.bincount(window.events.family, minlength=of_events)
    return count


def _selection(window: Window, i: int, kernel_class: str, family: Ints) -> Selection:
    """Return the selection of a scenario for the family: its GPU work, or for host time, gaps and waits its edges."""
    if kernel_class in (CPU, HOST, GAP):
        return Selection((family == i).astype(float))
    return Selection(work=window.events.family == i)


def _length(window: Window, selection: Selection, cut: int) -> int:
    """Return the length of the path if the time of a selection is cut by a percentage, ns."""
    change = Change(window.timeline)
    change.apply(selection, 1 - cut / 100)
    return int(window.graph.forward(change.of(window.graph.weight, window.graph.dst)).max())
