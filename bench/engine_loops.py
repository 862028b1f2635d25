"""Hand-written loops in the shape of FusedSparseDist, to compare with the two engines.

The tasks are empty, so the whole time of a run is the cost between tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from pipelines.schedule import IterContext, PipelinePlan, PipelineTask, TaskSchedule
from pipelines.schedule.engine.order import enqueue_order
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import name_of
from pipelines.schedule.plan.validate import validate_plan
from tests.schedule.plans import fused_sparse_dist

Fn = Callable[[IterContext], None]
Job = Callable[[], Any]

THREE_GROUPS = {"H2D": "io", "InputDistStart": "dist", "InputDistWait": "dist"}
"""Tasks of FusedSparseDist that threads of their own submit; the others are in the group `default`."""
GROUPS = {1: {}, 3: THREE_GROUPS}
"""Number of thread groups, and the groups of the tasks."""
AT_MOST = {1: 1.2, 3: 2.0}
"""Number of thread groups, and how many times the hand-written loop an empty task of an engine may cost."""


def nothing(ctx: IterContext) -> None:
    """Do nothing. This is the function of an empty task."""


def fused_plan(functions: Mapping[str, Fn] | None = None, groups: int = 1) -> PipelinePlan:
    """Return the plan FusedSparseDist (SWP-69) with other functions, by default empty ones. `groups`: one of GROUPS."""
    plan = fused_sparse_dist(thread_group=GROUPS[groups])
    schedule: dict[str | PipelineTask, TaskSchedule] = {}
    for ref, settings in plan.schedule.items():
        name = name_of(ref)
        schedule[PipelineTask(name, functions[name] if functions else nothing)] = settings
    return PipelinePlan(schedule, plan.intra_iter_deps, plan.inter_iter_deps)


class _ByHand:
    """Base of both hand-written loops: periods, contexts, a ring of events, a thread for each queue.

    Everything that does not depend on the data is computed in advance, as in a loop that is written for one model.
    """

    def __init__(self, plan: PipelinePlan) -> None:
        checked = validate_plan(plan)
        self.names = enqueue_order(checked, "ready_first")
        self.depth = checked.depth
        self.stage = {name: checked.stage(name) for name in self.names}
        self.fn = {name: checked.tasks[name].fn for name in self.names}
        self.stream = {name: str(checked.stream(name)) for name in self.names}
        self.group = {name: checked.schedule[name].thread_group for name in self.names}
        self.intra, self.inter = checked.intra, checked.inter
        self.last = _last(checked)
        # Tasks on the same stream need no events, because a stream is first-in-first-out.
        self.other = {n: [d for d in checked.intra[n] if self.stream[d] != self.stream[n]] for n in self.names}
        self.other_before = {n: [d for d in checked.inter[n] if self.stream[d] != self.stream[n]] for n in self.names}

    def run(self, iterations: int) -> float:
        """Return the seconds of a whole run, including the start and end of its threads."""
        queues = self.queues()
        threads = [Thread(target=work, args=(queue,), daemon=True) for queue, work in queues]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        self._periods(iterations)
        for (queue, _), thread in zip(queues, threads, strict=True):
            queue.put(None)
            thread.join()
        return time.perf_counter() - start

    def _periods(self, iterations: int) -> None:
        data, size = iter(range(iterations)), self.depth + 1
        ring = [self.slot() for _ in range(size)]
        contexts: dict[int, IterContext] = {}
        period = oldest = 0
        while oldest < iterations:
            batch = next(data, None)
            if batch is not None:
                self.clear(ring[period % size])
                contexts[period] = IterContext(batch, period)
            for name in self.names:
                i = period - self.stage[name]
                if i in contexts:
                    self.submit(name, contexts[i], ring[i % size], ring[(i - 1) % size] if i else None)
            period += 1
            if period >= self.depth:
                self.wait(ring[oldest % size])
                del contexts[oldest]
                oldest += 1

    def queues(self) -> list[tuple[SimpleQueue, Callable[[SimpleQueue], None]]]:
        """Return the queue and the function of each thread."""
        raise NotImplementedError

    def slot(self) -> Any:
        """Return the events of one iteration."""
        raise NotImplementedError

    def clear(self, slot: Any) -> None:
        raise NotImplementedError

    def submit(self, name: str, ctx: IterContext, slot: Any, before: Any) -> None:
        raise NotImplementedError

    def wait(self, slot: Any) -> None:
        """Wait until the iteration is done."""
        raise NotImplementedError


class StreamThreads(_ByHand):
    """The minimal loop: the caller puts tasks into one queue per stream, and one thread per stream waits and runs them.

    It has one event per task. It is not the document's protocol. A GPU cannot be driven like this, because no host
    thread launches the tasks.
    """

    def queues(self) -> list[tuple[SimpleQueue, Callable[[SimpleQueue], None]]]:
        self.by_stream = {stream: SimpleQueue() for stream in dict.fromkeys(self.stream.values())}
        self.rows = {
            n: (self.by_stream[self.stream[n]], self.fn[n], self.other[n], self.other_before[n]) for n in self.names
        }
        return [(queue, _wait_and_run) for queue in self.by_stream.values()]

    def slot(self) -> dict[str, Event]:
        return {name: Event() for name in self.names}

    def clear(self, slot: dict[str, Event]) -> None:
        for event in slot.values():
            event.clear()

    def submit(self, name: str, ctx: IterContext, slot: dict[str, Event], before: dict[str, Event] | None) -> None:
        queue, fn, waits, waits_before = self.rows[name]
        queue.put((name, fn, ctx, slot, waits, before, waits_before))

    def wait(self, slot: dict[str, Event]) -> None:
        for name in self.last:
            slot[name].wait()


def _wait_and_run(queue: SimpleQueue) -> None:
    while (job := queue.get()) is not None:
        name, fn, ctx, slot, waits, before, waits_before = job
        for dep in waits:
            slot[dep].wait()
        for dep in waits_before if before else ():
            before[dep].wait()
        fn(ctx)
        slot[name].set()


class TwoPhases(_ByHand):
    """The document's protocol (SWP-9): one thread per group submits, one per stream runs, with two events per task.

    Phase 1: the submitting thread waits until a task's dependencies are submitted. Phase 2: the task's stream waits
    until they are done. This is the loop that the engine replaces, with the same threads.
    """

    def queues(self) -> list[tuple[SimpleQueue, Callable[[SimpleQueue], None]]]:
        self.by_group = {group: SimpleQueue() for group in dict.fromkeys(self.group.values())}
        self.by_stream = {stream: SimpleQueue() for stream in dict.fromkeys(self.stream.values())}
        submitting = [(queue, self._submitting) for queue in self.by_group.values()]
        return submitting + [(queue, _run_jobs) for queue in self.by_stream.values()]

    def slot(self) -> tuple[dict[str, Event], dict[str, Event]]:
        return {name: Event() for name in self.names}, {name: Event() for name in self.names}

    def clear(self, slot: tuple[dict[str, Event], dict[str, Event]]) -> None:
        for events in slot:
            for event in events.values():
                event.clear()

    def submit(self, name: str, ctx: IterContext, slot: Any, before: Any) -> None:
        self.by_group[self.group[name]].put((name, ctx, slot, before))

    def wait(self, slot: tuple[dict[str, Event], dict[str, Event]]) -> None:
        for name in self.last:
            slot[1][name].wait()

    def _submitting(self, queue: SimpleQueue) -> None:
        while (item := queue.get()) is not None:
            name, ctx, (submitted, done), before = item
            stream = self.by_stream[self.stream[name]]
            for dep in self.intra[name]:
                submitted[dep].wait(30)
            for dep in self.other[name]:
                stream.put((done[dep].wait, ()))
            if before is not None:
                for dep in self.inter[name]:
                    before[0][dep].wait(30)
                for dep in self.other_before[name]:
                    stream.put((before[1][dep].wait, ()))
            stream.put((self.fn[name], (ctx,)))
            stream.put((done[name].set, ()))
            submitted[name].set()


def _run_jobs(queue: SimpleQueue) -> None:
    while (job := queue.get()) is not None:
        fn, arguments = job
        fn(*arguments)


def _last(checked: CheckedPlan) -> list[str]:
    """Return the tasks for which no task of the same iteration waits."""
    waited_for = {dep for deps in checked.intra.values() for dep in deps}
    return [name for name in checked.names if name not in waited_for]
