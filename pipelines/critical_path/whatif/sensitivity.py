"""Which kernels are worth optimizing: the change of the path's length if a family of events gets faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.bounds import CPU
from pipelines.critical_path.whatif.before_after import Path, Weights
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import Window

CUTS = (10, 50, 100)
"""The percentages by which each family is made faster."""
ONLY_WAITS = frozenset(row["name"] for row in rule_rows("call_roles") if row["role"] == "only_waits")
"""Calls that do nothing but wait for the GPU: they end when its work does, so they cannot be made faster."""


@dataclass(frozen=True)
class Family:
    """Events of one class and name. Times in us; `change_us` is the change of the path's length by percent of
    reduction.

    `total_us` is their own time in the graph, `on_path_us` the part of it on the actual path. Calls that only wait change
    nothing: their time is saved by faster work on the GPU.
    """

    kernel_class: str
    name: str
    events: int
    total_us: float
    on_path_us: float
    change_us: dict[int, float]
    only_waits: bool = False

    def as_json(self) -> dict[str, Any]:
        """One row of `--sensitivity --json`."""
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
    """Returns every family of kernels (`with_cpu`: also of CPU events), largest gain first. Raises GraphHasCycle.

    A family changes as in a scenario that scales its events. If it has no time on the path, making it faster does not
    change the path's length, so only the others are recomputed.
    """
    before = Path.under(window, Weights.of(window, Scenario()))
    base, n = window.graph.weight, len(window.events.families)
    length = int(base[before.edges].sum())
    events = np.bincount(window.events.family, minlength=n)
    total = np.bincount(window.family, base, minlength=n + 1)
    on_path = np.bincount(window.family[before.edges], base[before.edges], minlength=n + 1)
    found = []
    for i, (kernel_class, name) in enumerate(window.events.families):
        if kernel_class == CPU and not with_cpu:
            continue
        change: dict[int, float] = dict.fromkeys(CUTS, 0.0)
        only_waits = kernel_class == CPU and name in ONLY_WAITS
        if on_path[i] > 0 and not only_waits:
            edges = np.flatnonzero(window.family == i)
            change.update((cut, (_length(window, edges, cut) - length) / 1000) for cut in CUTS)
        total_us, on_path_us = float(total[i]) / 1000, float(on_path[i]) / 1000
        found.append(Family(kernel_class, name, int(events[i]), total_us, on_path_us, change, only_waits))
    return sorted(found, key=lambda f: (f.change_us[100], f.change_us[50], f.change_us[10], -f.total_us, f.name))


def _length(window: Window, edges: np.ndarray, cut: int) -> int:
    """Returns the length of the path, ns, if the weights of these edges are cut by a percentage."""
    weight = window.graph.weight.copy()
    weight[edges] = np.rint(weight[edges] * (1 - cut / 100))
    return int(window.forest.distances(weight).at.max())
