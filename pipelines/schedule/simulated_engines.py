"""The three ways to run a plan, on the virtual host and streams of simulator.py: clocked, by data flow, serially."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pipelines.schedule.lanes import Item, Periods, lane_order, lanes_of
from pipelines.schedule.order import serial_order
from pipelines.schedule.plan import DEFAULT_STREAM
from pipelines.schedule.simulator import Simulation, Wait, Work
from pipelines.schedule.timeline import RETIRE, SUBMIT
from pipelines.schedule.virtual_host import Thread

_KEPT_WAITS = 16
"""How far back a fired task remembers what those before it waited for."""


class ClockedSimulation(Simulation):
    """SWPipeline: period p submits every task once, stage s for iteration p - s; `depth` periods are in flight."""

    engine = "SWPipeline"

    def __init__(self, work: Work, order: Sequence[str]) -> None:
        super().__init__(work)
        self._order = order

    def _main(self) -> Thread:
        for period in range(self.plan.depth):
            self._enqueue_period(period, ())
        for iteration in range(self.work.iterations):
            yield from self._retire(iteration)
            self._enqueue_period(iteration + self.plan.depth, [(self.host.now, RETIRE, "", iteration)])
        self._stop()

    def _enqueue_period(self, period: int, asked: Sequence[Wait]) -> None:
        for task in self._order:
            iteration = period - self.plan.stage(task)
            if 0 <= iteration < self.work.iterations:
                self._put(task, iteration, asked)


class DataFlowSimulation(Simulation):
    """DataFlowPipeline: a task fires when its dependencies were submitted, its iteration is in flight (SWP-55), and it
    comes next in its lanes.

    At most `max_depth` iterations are in flight, so the document's second condition (fewer than `max_depth` pending
    submissions of the task) never decides anything that the third (the context exists) does not; `peak_pending` lets a
    test see that (trap T10).
    """

    engine = "DataFlowPipeline"

    def __init__(self, work: Work, max_depth: int, order: str) -> None:
        super().__init__(work)
        self._order, self._max_depth = serial_order(self.plan), max_depth
        self._created = 0
        self._fired: set[Item] = set()
        self._done: set[Item] = set()
        self.peak_pending = 0
        self._periods = Periods()
        self._lanes = lanes_of(self.plan, lane_order(self.plan, max_depth, order), order)
        self._then_same = {t: [u for u in work.plan.names if t in work.plan.intra[u]] for t in work.plan.names}
        self._then_next = {t: [u for u in work.plan.names if t in work.plan.inter[u]] for t in work.plan.names}

    def _main(self) -> Thread:
        self._advance(0, ())
        for iteration in range(self.work.iterations):
            yield from self._retire(iteration)
            self._periods.end(iteration)
            self._advance(iteration + 1, [(self.host.now, RETIRE, "", iteration)])
        self._stop()

    def _advance(self, oldest: int, asked: Sequence[Wait]) -> None:
        """New iterations up to the limit; each fires what it can at once (the burst, SWP-57)."""
        while self._created < min(oldest + self._max_depth, self.work.iterations):
            self._periods.begin(self._created)
            self._created += 1
            self.peak_pending = max(self.peak_pending, self._created - oldest)
            self._fire([(task, self._created - 1) for task in self._order], asked)
        if oldest < self._created == self.work.iterations:
            self._periods.let_pass(self._created - 1, self._max_depth)
            self._fire([(task, i) for i in range(oldest, self._created) for task in self._order], asked)

    def _after(self, task: str, iteration: int, asked: Sequence[Wait]) -> None:
        self._done.add((task, iteration))
        ready = [(follower, iteration) for follower in self._then_same[task]]
        ready += [(follower, iteration + 1) for follower in self._then_next[task]]
        for lane in self._lanes[task]:
            if not lane.one_thread:
                lane.advance()
                ready += [item] if (item := lane.next(self._periods)) else []
        self._fire(ready, lengthening(asked)[-_KEPT_WAITS:])

    def _fire(self, candidates: Sequence[Item], asked: Sequence[Wait]) -> None:
        todo = deque(candidates)
        while todo:
            task, iteration = todo.popleft()
            if self._can_fire(task, iteration):
                self._fired.add((task, iteration))
                self._put(task, iteration, asked)
                for lane in self._lanes[task]:
                    if lane.one_thread:
                        lane.advance()
                        todo += [item] if (item := lane.next(self._periods)) else []

    def _can_fire(self, task: str, iteration: int) -> bool:
        return (
            iteration < self._created
            and (task, iteration) not in self._fired
            and self._done.issuperset(self._dependencies(task, iteration))
            and all(lane.next(self._periods) == (task, iteration) for lane in self._lanes[task])
        )


class SerialSimulation(Simulation):
    """run_serial: one thread, one stream, tasks in topological order, nothing to wait for."""

    engine = "serial"

    def __init__(self, work: Work, order: Sequence[str]) -> None:
        super().__init__(work)
        self._order = order
        self.streams = dict.fromkeys(order, DEFAULT_STREAM)
        self._free = {DEFAULT_STREAM: 0}

    def _main(self) -> Thread:
        for iteration in range(self.work.iterations):
            for task in self._order:
                yield self.host.now + self.work.submit_ns[task]
                self._launch(task, iteration, [(self.host.now, SUBMIT, task, iteration)])
        self.retired = self._iteration_end
        self._stop()


def lengthening(waits: Sequence[Wait]) -> list[Wait]:
    """Those waits that made the host later than it was already."""
    kept: list[Wait] = []
    for wait in waits:
        if not kept or wait[0] > kept[-1][0]:
            kept.append(wait)
    return kept
