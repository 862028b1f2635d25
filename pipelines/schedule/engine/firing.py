"""Rules for the tasks that the data-flow engine gives to its threads, without threads, clock or data.

The engine (dataflow_pipeline.py) and its simulation (simulated_engines.py) both use `Firing`. A task fires when its
iteration is in flight, it has not fired yet, its dependencies are submitted, fewer than `max_depth` of its submissions
are in flight, and it is next in its lanes. For globally ordered tasks, the last rule prevents that two tasks of one
thread wait for each other's turn.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.schedule.engine.lanes import Item, Periods, lane_order, lanes_of
from pipelines.schedule.engine.order import serial_order
from pipelines.schedule.plan.checked_plan import CheckedPlan


class Firing:
    """State of the rules. Not thread-safe. Methods return the tasks that fire, in order of submission."""

    def __init__(self, checked: CheckedPlan, max_depth: int, order: str) -> None:
        self.stages = lane_order(checked, max_depth, order)
        self._checked, self._max_depth, self._order = checked, max_depth, order
        self._serial_order = serial_order(checked)
        self._then_same, self._then_next = _followers(checked.intra), _followers(checked.inter)
        self.reset()

    def reset(self) -> None:
        """Reset to the state before the first iteration."""
        self.fired: set[Item] = set()
        self.done: set[Item] = set()
        self.pending = dict.fromkeys(
            self._checked.schedule, 0
        )  # number of unretired iterations in which the task fired
        self.held_back = False  # whether the in-flight limit held a task back since the last sweep
        self._in_flight: dict[int, None] = {}
        self._periods = Periods()
        self._lanes = lanes_of(self._checked, self.stages, self._order)

    @property
    def has_lanes_of_one_stage(self) -> bool:
        """Return whether no lane has tasks of several stages."""
        return all(lane.has_one_stage for lanes in self._lanes.values() for lane in lanes)

    def begin(self, iteration: int) -> list[Item]:
        """Start an iteration, and immediately fire all its tasks that can run (the burst)."""
        self._periods.begin(iteration)
        self._in_flight[iteration] = None
        return self._fire((name, iteration) for name in self._serial_order)

    def pause(self, iteration: int) -> int:
        """Return how many periods after the previous iteration this iteration would start.

        It is at least `max_depth` if the previous iteration is retired.
        """
        return self._periods.known - self._periods.start(iteration - 1, -self._max_depth)

    def let_pass(self, iteration: int) -> list[Item]:
        """Record that no iteration starts while a clock would still work on this one, so that no lane waits for it."""
        self._periods.let_pass(iteration, self._max_depth)
        return self.sweep()

    def sweep(self) -> list[Item]:
        """Retry the tasks that the in-flight limit or a lane held back."""
        self.held_back = False
        return self._fire((name, i) for i in sorted(self._in_flight) for name in self._serial_order)

    def submitted(self, name: str, iteration: int) -> list[Item]:
        """Record that a task was submitted. Fire the tasks that waited for it and the next tasks in its lanes."""
        self.done.add((name, iteration))
        ready = [(follower, iteration) for follower in self._then_same[name]]
        if self._then_next[name]:
            ready += [(follower, iteration + 1) for follower in self._then_next[name]]
        for lane in self._lanes[name]:
            if not lane.one_thread:
                lane.advance()
                if (following := lane.next(self._periods)) is not None:
                    ready.append(following)
        return self._fire(ready)

    def retire(self, iteration: int) -> None:
        """Record that an iteration is no longer in flight."""
        del self._in_flight[iteration]
        self._periods.end(iteration)
        for name in self.pending:
            self.pending[name] -= 1
            self.fired.discard((name, iteration))
            self.done.discard((name, iteration - 1))  # not `iteration`, because the next one may still depend on it

    def _fire(self, candidates: Iterable[Item]) -> list[Item]:
        """Fire the candidates that can run, and the tasks that follow them in their lanes."""
        todo, fired = list(candidates), []
        for item in todo:  # the list grows during the iteration
            if not self.can_fire(*item):
                continue
            self.fired.add(item)
            self.pending[item[0]] += 1
            fired.append(item)
            for lane in self._lanes[item[0]]:
                if lane.one_thread:
                    lane.advance()
                    if (following := lane.next(self._periods)) is not None:
                        todo.append(following)
        return fired

    def can_fire(self, name: str, iteration: int) -> bool:
        """Return whether the task may be given to its thread now."""
        item, done = (name, iteration), self.done
        if iteration not in self._in_flight or item in self.fired:
            return False
        for dep in self._checked.intra[name]:  # checked first, because most candidates wait for a dependency
            if (dep, iteration) not in done:
                return False
        for dep in self._checked.inter[name] if iteration else ():
            if (dep, iteration - 1) not in done:
                return False
        for lane in self._lanes[name]:
            if lane.next(self._periods) != item:
                return False
        if self.pending[name] >= self._max_depth:
            self.held_back = True
            return False
        return True


class InOrder(Firing):
    """The same rules where they have one result: all tasks of an iteration fire when it begins, in the same order each time.

    That is so if one thread submits all tasks (a task is submitted before the next fires) and each lane has tasks of one
    stage. Then no task waits for a task of a later iteration, and all that it waits for comes earlier in this order.
    """

    def __init__(self, checked: CheckedPlan, max_depth: int, order: str) -> None:
        super().__init__(checked, max_depth, order)
        items = super().begin(0)
        for item in items:  # the list grows during the iteration
            items += super().submitted(*item)
        self._names = [name for name, _ in items]
        self.reset()

    def begin(self, iteration: int) -> list[Item]:
        """Start an iteration. Return all its tasks."""
        self._periods.begin(iteration)
        return [(name, iteration) for name in self._names]

    def sweep(self) -> list[Item]:
        """Return an empty list, because no task is ever held back."""
        return []

    def submitted(self, name: str, iteration: int) -> list[Item]:
        """Return an empty list, because the tasks that wait for this one have fired."""
        return []

    def retire(self, iteration: int) -> None:
        """Record that an iteration is no longer in flight."""
        self._periods.end(iteration)


def firing_of(checked: CheckedPlan, max_depth: int, order: str) -> Firing:
    """Return the rules of an engine, `InOrder` where they have one result."""
    rules = Firing(checked, max_depth, order)
    has_one_group = len({s.thread_group for s in checked.schedule.values()}) == 1
    return InOrder(checked, max_depth, order) if has_one_group and rules.has_lanes_of_one_stage else rules


def _followers(deps: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = {name: [] for name in deps}
    for name, dependencies in deps.items():
        for dep in dependencies:
            followers[dep].append(name)
    return followers
