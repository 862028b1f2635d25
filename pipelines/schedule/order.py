"""In which order a clocked engine submits the tasks of one period (SWP-18, SWP-26 to SWP-32).

The functions take a CheckedPlan and trust it: given a plan the validator refuses, `ready_first` leaves out what a cycle
holds up, and orders the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pipelines.schedule.checked import CheckedPlan

ORDERS = ("ready_first", "stage_descending")


def enqueue_order(plan: CheckedPlan, order: str) -> list[str]:
    """The submission order by its name. Raises ValueError for an unknown one."""
    if order == "ready_first":
        return ready_first(plan)
    if order == "stage_descending":
        return stage_descending(plan)
    raise ValueError(f"order={order!r}: use one of {', '.join(map(repr, ORDERS))}")


def period_edges(plan: CheckedPlan) -> dict[str, list[str]]:
    """Task -> what it waits for within one period (SWP-26).

    Of the same iteration: tasks of the same stage. Of the iteration before: tasks one stage later (k = 1). Everything
    else was submitted in an earlier period.
    """
    return {
        name: [d for d in plan.intra[name] if plan.stage(d) == plan.stage(name)]
        + [d for d in plan.inter[name] if plan.stage(d) == plan.stage(name) + 1]
        for name in plan.schedule
    }


def stall_costs(plan: CheckedPlan) -> dict[str, int]:
    """How many of the task's waits within a period are for another stream (SWP-27).

    A wait for an earlier stage counts nothing although the stream may stall on it (trap T5): its work was submitted a
    period earlier and is taken to be done.
    """
    edges = period_edges(plan)
    return {name: sum(plan.stream(d) != plan.stream(name) for d in deps) for name, deps in edges.items()}


def ready_first(plan: CheckedPlan) -> list[str]:
    """Of the tasks whose waits are submitted, always the one with the least (stall cost, name) (SWP-28).

    The document's worked SparseDist example (SWP-29) prints ZeroGrad before InputDistWait; its own pseudocode, which
    this follows, sorts again after every step and gives the reverse (trap T2). Likewise its last example prints a
    stage-descending table (trap T3).
    """
    cost = stall_costs(plan)
    return topological(period_edges(plan), lambda name: (cost[name], name))


def stage_descending(plan: CheckedPlan) -> list[str]:
    """Older iterations first; within a stage by dependency, then as declared (SWP-18, SWP-30)."""
    declared = {name: i for i, name in enumerate(plan.schedule)}
    return topological(period_edges(plan), lambda name: (-plan.stage(name), declared[name]))


def serial_order(plan: CheckedPlan) -> list[str]:
    """One iteration after the other: by dependency, then by name, as the document's `_topo_sort` does."""
    return topological(plan.intra, lambda name: name)


def topological(waits_for: Mapping[str, Sequence[str]], key: Callable[[str], Any]) -> list[str]:
    """Of the ready tasks always the one with the least `key`; what a cycle holds up is left out."""
    sorter = TopologicalSorter(waits_for)
    with suppress(CycleError):  # the sorter still gives what no cycle holds up
        sorter.prepare()
    ready: list[tuple[Any, str]] = []
    order = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, (key(name), name))
        order.append(heapq.heappop(ready)[1])
        sorter.done(order[-1])
    return order
