"""The order that a clock would give a stream, kept by an engine that has no clock.

A clock submits period after period, and in each period every task once, so on a stream it has one order for all
iterations. Data flow keeps that order and nothing else of the clock: a lane is the sequence, and says what comes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipelines.schedule.checked import CheckedPlan
from pipelines.schedule.corollaries import clock_problems
from pipelines.schedule.order import ready_first, serial_order

ORDERS = ("stages", "dependencies")
Item = tuple[str, int]
"""A task and its iteration."""


def lane_order(plan: CheckedPlan, max_depth: int, order: str = "stages") -> dict[str, int]:
    """Every task in the order of one period, with the stage at which it takes part in the clock's order.

    "stages": SWPipeline's. With fewer iterations in flight than the plan has stages the last ones become one stage, in
    their order: a clock of `max_depth` periods. Stages that no clock could run, and "dependencies", count as one stage
    in the order of a serial run: one iteration after the other.

    Why nobody waits forever: (period, place in it) counts all submissions. What a task waits for comes earlier in that
    count (corollaries 1 and 3, and cutting off stages keeps both), and so does every task of an iteration that must be
    retired before the task's own may begin (no stage is above max_depth - 1). So the first that is not submitted can be.
    """
    if order == "dependencies" or clock_problems(plan):
        return dict.fromkeys(serial_order(plan), 0)
    last, names = max_depth - 1, ready_first(plan)
    names.sort(key=lambda name: max(0, plan.stage(name) - last))  # a stable sort: within a stage the order stays
    return {name: min(plan.stage(name), last) for name in names}


class Periods:
    """The periods in which a clock would have begun the iterations: one per period, none if there was no batch."""

    def __init__(self) -> None:
        self.known = 0
        """For the periods before this one, it is known which iteration began."""
        self.iterations: dict[int, int] = {}
        """Period → iteration; those in flight."""
        self._of: dict[int, int] = {}

    def begin(self, iteration: int) -> None:
        """The iteration begins in the next period."""
        self.iterations[self.known] = iteration
        self._of[iteration] = self.known
        self.known += 1

    def end(self, iteration: int) -> None:
        """The iteration is retired."""
        del self.iterations[self._of.pop(iteration)]

    def let_pass(self, iteration: int, depth: int) -> None:
        """No later iteration begins in the `depth` periods from the iteration's beginning."""
        self.known = max(self.known, self._of[iteration] + depth)


class Lane:
    """Tasks that are submitted in one order: a stream's, or the globally ordered ones.

    `one_thread`: one thread submits them all, first-in-first-out, so that giving them to it in order is enough; else the
    next waits until the one before is submitted.
    """

    def __init__(self, stages: Mapping[str, int], one_thread: bool) -> None:
        self.one_thread = one_thread
        self._steps = list(stages.items())
        self._period = 0
        self._place = 0
        self._next: Item | None = None  # once it is known: asked for often

    def next(self, periods: Periods) -> Item | None:
        """What comes next; None while that is not known, for an iteration may still begin that comes before."""
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
        """What came next is through."""
        self._next = None
        self._place += 1
        if self._place == len(self._steps):
            self._place, self._period = 0, self._period + 1


def lanes_of(plan: CheckedPlan, stages: Mapping[str, int], order: str) -> dict[str, list[Lane]]:
    """Task → the lanes that it is in: its stream's (order "stages"), and that of the globally ordered tasks."""
    found: dict[str, list[Lane]] = {name: [] for name in stages}

    def add(names: Iterable[str], one_thread: bool) -> None:
        if own := {name: stages[name] for name in stages if name in names}:
            lane = Lane(own, one_thread)
            for name in own:
                found[name].append(lane)

    for stream in dict.fromkeys(plan.stream(name) for name in stages) if order == "stages" else ():
        names = {name for name in stages if plan.stream(name) == stream}
        add(names, len({plan.schedule[name].thread_group for name in names}) == 1)
    add({name for name in stages if plan.schedule[name].globally_ordered}, one_thread=True)  # the sequencer keeps them
    return found
