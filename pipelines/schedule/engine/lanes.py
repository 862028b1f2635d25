"""Lanes: a clock's submission order on a stream, in an engine without a clock.

A clocked engine submits every task once per period, so each stream has one fixed order over all iterations. The
data-flow engine keeps that order, but no other effect of the clock. A lane is such a sequence and determines the next
submission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipelines.schedule.engine.order import ready_first, serial_order
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.corollaries import clock_problems

ORDERS = ("stages", "dependencies")
Item = tuple[str, int]
"""A task and its iteration."""


def lane_order(plan: CheckedPlan, max_depth: int, order: str = "stages") -> dict[str, int]:
    """Return the tasks in order within one period, with the stage of each in the clock's order.

    "stages": SWPipeline's order. With fewer iterations in flight than the plan has stages, the last stages are merged
    into one stage, in their order, as for a clock of `max_depth` periods. If no clock could run the stages, and for
    "dependencies", all tasks have stage 0, in the order of a serial run, one iteration after the other.

    No task waits forever. (Period, position in the period) numbers all submissions. A task's dependencies have lower
    numbers (by corollaries 1 and 3, which merging stages preserves). So does every task of an iteration that must be
    retired before the task's iteration may start (no stage is above max_depth - 1). So the submission with the lowest
    number that is left can always be made.
    """
    if order == "dependencies" or clock_problems(plan):
        return dict.fromkeys(serial_order(plan), 0)
    last, names = max_depth - 1, ready_first(plan)
    names.sort(key=lambda name: max(0, plan.stage(name) - last))  # a stable sort: the order within a stage is kept
    return {name: min(plan.stage(name), last) for name in names}


class Periods:
    """Periods in which a clock would have started the iterations, at most one per period, none without a batch."""

    def __init__(self) -> None:
        self.known = 0
        """First period for which it is still unknown whether an iteration starts in it."""
        self.iterations: dict[int, int] = {}
        """Period → iteration, for iterations in flight."""
        self._of: dict[int, int] = {}

    def begin(self, iteration: int) -> None:
        """Start the iteration in the next period."""
        self.iterations[self.known] = iteration
        self._of[iteration] = self.known
        self.known += 1

    def start(self, iteration: int, otherwise: int) -> int:
        """Return the period in which the iteration started, or `otherwise` if it is not in flight."""
        return self._of.get(iteration, otherwise)

    def end(self, iteration: int) -> None:
        """Retire the iteration."""
        del self.iterations[self._of.pop(iteration)]

    def let_pass(self, iteration: int, depth: int) -> None:
        """Record that no later iteration starts in the `depth` periods from this iteration's start."""
        self.known = max(self.known, self._of[iteration] + depth)


class Lane:
    """Tasks that are submitted in one order: the tasks of a stream, or the globally ordered tasks.

    `one_thread`: whether one thread submits all these tasks first-in-first-out, so that queueing them in order is
    enough. Otherwise, the next task waits until the previous task is submitted.
    """

    def __init__(self, stages: Mapping[str, int], one_thread: bool) -> None:
        self.one_thread = one_thread
        self._steps = list(stages.items())
        self._period = 0
        self._place = 0
        self._next: Item | None = None  # cached, because `next` is called often

    @property
    def has_one_stage(self) -> bool:
        """Return whether its tasks have one stage, so that it has all tasks of an iteration before any of the next."""
        return len({stage for _, stage in self._steps}) == 1

    def next(self, periods: Periods) -> Item | None:
        """Return the next submission, or None while it is unknown whether an iteration starts that would come first."""
        while self._next is None:
            name, stage = self._steps[self._place]
            begun_in = self._period - stage
            if begun_in >= periods.known:
                return None
            iteration = periods.iterations.get(begun_in)
            if iteration is None:
                self.advance()
            else:
                self._next = name, iteration
        return self._next

    def advance(self) -> None:
        """Move past the next submission."""
        self._next = None
        self._place += 1
        if self._place == len(self._steps):
            self._place, self._period = 0, self._period + 1


def lanes_of(plan: CheckedPlan, stages: Mapping[str, int], order: str) -> dict[str, list[Lane]]:
    """Return the lanes of each task: its stream's lane (order "stages"), and the lane of globally ordered tasks."""
    lanes: dict[str, list[Lane]] = {name: [] for name in stages}

    def add(names: Iterable[str], one_thread: bool) -> None:
        if lane_stages := {name: stages[name] for name in stages if name in names}:
            lane = Lane(lane_stages, one_thread)
            for name in lane_stages:
                lanes[name].append(lane)

    for stream in dict.fromkeys(plan.stream(name) for name in stages) if order == "stages" else ():
        names = {name for name in stages if plan.stream(name) == stream}
        add(names, len({plan.schedule[name].thread_group for name in names}) == 1)
    add(
        {name for name in stages if plan.schedule[name].globally_ordered}, one_thread=True
    )  # the sequencer keeps their order
    return lanes
