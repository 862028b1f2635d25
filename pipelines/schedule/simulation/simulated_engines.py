"""Three ways to run a plan on the virtual host and streams of simulator.py: clocked, by data flow, serially."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.schedule.engine.firing import Firing
from pipelines.schedule.engine.lanes import Item
from pipelines.schedule.engine.order import Handovers
from pipelines.schedule.pictures.timeline import RETIRE, SUBMIT
from pipelines.schedule.plan.plan import DEFAULT_STREAM
from pipelines.schedule.simulation.simulator import Simulation, Wait, Work
from pipelines.schedule.simulation.virtual_host import Thread

_KEPT_WAITS = 16
"""Maximum number of earlier waits that a fired task keeps."""


class ClockedSimulation(Simulation):
    """SWPipeline. Period p submits every task once, stage s for iteration p - s. `depth` periods are in flight."""

    engine = "SWPipeline"

    def __init__(self, work: Work, order: Sequence[str]) -> None:
        super().__init__(work, order)
        self._handovers = Handovers(self.plan)

    def _main(self) -> Thread:
        for period in range(self.plan.depth):
            self._enqueue_period(period, ())
        for iteration in range(self.work.iterations):
            yield from self._retire(iteration)
            self._enqueue_period(iteration + self.plan.depth, [(self.host.now, RETIRE, "", iteration)])
        self._stop()

    def _enqueue_period(self, period: int, delays: Sequence[Wait]) -> None:
        for task in self.order:
            iteration = period - self.plan.stage(task)
            if 0 <= iteration < self.work.iterations:
                self._put(task, iteration, delays, self._handovers.follow(task, iteration))


class DataFlowSimulation(Simulation):
    """DataFlowPipeline. The rules for firing tasks are in firing.py, which the engine also uses."""

    engine = "DataFlowPipeline"

    def __init__(self, work: Work, max_depth: int, order: str) -> None:
        super().__init__(work)
        self._max_depth, self._created = max_depth, 0
        self._firing = Firing(self.plan, max_depth, order)

    def _main(self) -> Thread:
        self._advance(0, ())
        for iteration in range(self.work.iterations):
            yield from self._retire(iteration)
            self._firing.retire(iteration)
            self._advance(iteration + 1, [(self.host.now, RETIRE, "", iteration)])
        self._stop()

    def _advance(self, oldest: int, delays: Sequence[Wait]) -> None:
        """Start new iterations up to the limit.

        After the last one, let the clock run on, so that no lane waits for an iteration that never starts.
        """
        while self._created < min(oldest + self._max_depth, self.work.iterations):
            self._created += 1
            self._put_all(self._firing.begin(self._created - 1), delays)
        if oldest < self._created == self.work.iterations:
            self._put_all(self._firing.let_pass(self._created - 1), delays)

    def _after(self, task: str, iteration: int, delays: Sequence[Wait]) -> None:
        self._put_all(self._firing.submitted(task, iteration), lengthening(delays)[-_KEPT_WAITS:])

    def _put_all(self, fired: Sequence[Item], delays: Sequence[Wait]) -> None:
        for task, iteration in fired:
            self._put(task, iteration, delays)


class SerialSimulation(Simulation):
    """Serial run (run_serial): one thread, one stream, tasks in topological order, no waits."""

    engine = "serial"

    def __init__(self, work: Work, order: Sequence[str]) -> None:
        super().__init__(work, order)
        self.streams = dict.fromkeys(order, DEFAULT_STREAM)
        self._free = {DEFAULT_STREAM: 0}

    def _main(self) -> Thread:
        for iteration in range(self.work.iterations):
            for task in self.order:
                yield self.host.now + self.work.submit_ns[task]
                self._launch(task, iteration, [(self.host.now, SUBMIT, task, iteration)])
        self.retired = self._iteration_end
        self._stop()


def lengthening(waits: Sequence[Wait]) -> list[Wait]:
    """Return the waits that end later than all waits before them."""
    delaying: list[Wait] = []
    for wait in waits:
        if not delaying or wait[0] > delaying[-1][0]:
            delaying.append(wait)
    return delaying
