"""Keeps a stream's submission order as a clock would give it, in an engine that has no clock.

A clocked engine submits every task once per period, so on each stream it has one fixed order over all iterations. The
data-flow engine keeps that order and nothing else of the clock. A lane is such a sequence; it says which submission
comes next.
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
    """Returns every task in its order within one period, with the stage it counts as in the clock's order.

    "stages": SWPipeline's order. With fewer iterations in flight than the plan has stages, the last stages are merged
    into one, in their order: a clock of `max_depth` periods. Stages that no clock could run, and "dependencies", count
    as one stage in the order of a serial run: one iteration after the other.

    Why nobody waits forever: (period, position in it) numbers all submissions. A task's dependencies have lower numbers
    (by corollaries 1 and 3, which merging stages keeps), and so has every task of an iteration that must be retired
    before the task's own may start (no stage is above max_depth - 1). So the lowest number not yet submitted can always
    be submitted.
    """
    if order == "dependencies" or clock_problems(plan):
        return dict.fromkeys(serial_order(plan), 0)
    last, names = max_depth - 1, ready_first(plan)
    names.sort(key=lambda name: max(0, plan.stage(name) - last))  # a stable sort: the order within a stage is kept
    return {name: min(plan.stage(name), last) for name in names}


class Periods:
    """The periods in which a clock would have started the iterations: one per period, none if there was no batch."""

    def __init__(self) -> None:
        self.known = 0
        """For periods before this one, it is known which iteration started."""
        self.iterations: dict[int, int] = {}
        """Period → iteration, of those in flight."""
        self._of: dict[int, int] = {}

    def begin(self, iteration: int) -> None:
        """Start the iteration in the next period."""
        self.iterations[self.known] = iteration
        self._of[iteration] = self.known
        self.known += 1

    def end(self, iteration: int) -> None:
        """Retire the iteration."""
        del self.iterations[self._of.pop(iteration)]

    def let_pass(self, iteration: int, depth: int) -> None:
        """Say that no later iteration starts in the `depth` periods from this iteration's start."""
        self.known = max(self.known, self._of[iteration] + depth)


class Lane:
    """Tasks that are submitted in one order: those of a stream, or the globally ordered ones.

    `one_thread`: one thread submits them all first-in-first-out, so giving them to it in order is enough. Otherwise the
    next one waits until the one before is submitted.
    """

    def __init__(self, stages: Mapping[str, int], one_thread: bool) -> None:
        self.one_thread = one_thread
        self._steps = list(stages.items())
        self._period = 0
        self._place = 0
        self._next: Item | None = None  # cached, because it is asked for often

    def next(self, periods: Periods) -> Item | None:
        """The next submission; None while it is not known, because an iteration that comes before may still start."""
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
        """Move past the submission that was next."""
        self._next = None
        self._place += 1
        if self._place == len(self._steps):
            self._place, self._period = 0, self._period + 1


def lanes_of(plan: CheckedPlan, stages: Mapping[str, int], order: str) -> dict[str, list[Lane]]:
    """Returns task → its lanes: that of its stream (order "stages"), and that of the globally ordered tasks."""
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
