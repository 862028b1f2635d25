"""Orders in which a clocked engine submits the tasks of one period.

The functions assume that a CheckedPlan is legal. If the plan has a cycle, which the validator rejects, `ready_first`
omits the tasks that the cycle blocks and orders the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pipelines.schedule.plan.checked_plan import CheckedPlan

ORDERS = ("ready_first", "stage_descending")


def enqueue_order(plan: CheckedPlan, order: str) -> list[str]:
    """Return the tasks in the submission order named `order`. Raise ValueError if the name is unknown."""
    if order == "ready_first":
        return ready_first(plan)
    if order == "stage_descending":
        return stage_descending(plan)
    raise ValueError(f"order={order!r}: use one of {', '.join(map(repr, ORDERS))}")


def period_edges(plan: CheckedPlan) -> dict[str, list[str]]:
    """Return the dependencies of each task within one period.

    They are tasks of the same stage and iteration, and tasks one stage later of the previous iteration (k = 1). All
    other dependencies were submitted in an earlier period.
    """
    return {
        name: [d for d in plan.intra[name] if plan.stage(d) == plan.stage(name)]
        + [d for d in plan.inter[name] if plan.stage(d) == plan.stage(name) + 1]
        for name in plan.schedule
    }


def stall_costs(plan: CheckedPlan) -> dict[str, int]:
    """Return the number of dependencies of each task that are on another stream and within a period.

    A dependency on an earlier stage does not count, although the stream may stall on it. Its work was submitted a
    period earlier and is assumed to be done.
    """
    edges = period_edges(plan)
    return {name: sum(plan.stream(d) != plan.stream(name) for d in deps) for name, deps in edges.items()}


def ready_first(plan: CheckedPlan) -> list[str]:
    """Return the order that always picks the task with the lowest (stall cost, name) whose dependencies are submitted.

    The document's worked SparseDist example prints ZeroGrad before InputDistWait. Its own pseudocode, which this
    function follows, sorts again after every step and yields the reverse. Likewise, its last example prints a
    stage-descending table.
    """
    cost = stall_costs(plan)
    return topological(period_edges(plan), lambda name: (cost[name], name))


def stage_descending(plan: CheckedPlan) -> list[str]:
    """Return the order with older iterations (higher stages) first, then by dependency, then by declaration."""
    position = {name: i for i, name in enumerate(plan.schedule)}
    return topological(period_edges(plan), lambda name: (-plan.stage(name), position[name]))


def serial_order(plan: CheckedPlan) -> list[str]:
    """Return the tasks of an iteration by dependency, then by name, as the document's `_topo_sort` does."""
    return topological(plan.intra, lambda name: name)


def topological(waits_for: Mapping[str, Sequence[str]], key: Callable[[str], Any]) -> list[str]:
    """Return the topological order that always picks the ready task with the lowest `key`.

    Tasks that a cycle blocks are omitted.
    """
    sorter = TopologicalSorter(waits_for)
    with suppress(CycleError):  # the sorter still yields the tasks that no cycle blocks
        sorter.prepare()
    ready: list[tuple[Any, str]] = []
    order = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, (key(name), name))
        order.append(heapq.heappop(ready)[1])
        sorter.done(order[-1])
    return order


class Handovers:
    """The changes from one thread group to another on each stream, in a clock's order of submission.

    Within a group, its thread keeps this order. Where the thread changes, the engine must keep the order.
    """

    def __init__(self, plan: CheckedPlan) -> None:
        self._groups = {name: s.thread_group for name, s in plan.schedule.items()}
        groups: dict[Any, set[str]] = {}
        for name, group in self._groups.items():
            groups.setdefault(plan.stream(name), set()).add(group)
        self._streams = {name: plan.stream(name) for name in plan.schedule if len(groups[plan.stream(name)]) > 1}
        self.reset()

    def reset(self) -> None:
        """Forget all submissions."""
        self._last: dict[Any, tuple[str, int]] = {}

    def follow(self, name: str, iteration: int) -> tuple[str, int] | None:
        """Append the task's iteration to its stream.

        Return the previous submission if another thread makes it, else None.
        """
        if name not in self._streams:
            return None
        stream = self._streams[name]
        previous, self._last[stream] = self._last.get(stream), (name, iteration)
        return None if previous is None or self._groups[previous[0]] == self._groups[name] else previous
