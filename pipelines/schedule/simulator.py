"""The engines' rules on a virtual host and virtual streams.

What is modelled (SWP-9 to SWP-15, SWP-55 to SWP-58): a caller that fills, retires and enqueues; a FIFO thread a thread
group; phase 1 (the host waits until a dependency was submitted) and phase 2 (the stream waits for its event); FIFO
streams; the order of globally ordered tasks; the in-flight limit. What is not: two streams that slow each other down
because they share hardware. A task takes its declared duration wherever it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.schedule.plan import DEFAULT_STREAM
from pipelines.schedule.timeline import EVENT, HOST, ORDER, RETIRE, SIGNAL, SUBMIT, Span, Stall, Timeline
from pipelines.schedule.validate import CheckedPlan
from pipelines.schedule.virtual_host import Flag, Thread, VirtualHost

Wait = tuple[int, str, str, int | None]
"""Until when (ns) something was held up, by which kind of Stall, by which task and iteration."""

_KEPT_WAITS = 16
"""How far back a fired task remembers what those before it waited for."""


@dataclass
class Work:
    """What a simulated run is to do."""

    plan: CheckedPlan
    durations: dict[str, list[int]]
    iterations: int
    submit_ns: dict[str, int]
    finished: bool
    """progress() returns when the iteration is finished (else: when its last task was submitted)."""


@dataclass(slots=True)
class _Item:
    """One entry of a thread group's queue."""

    task: str
    iteration: int
    asked: Sequence[Wait]
    """What kept the caller, or the task that fired this one, from asking for it earlier."""
    turn: int | None


@dataclass(slots=True)
class _Group:
    """One host thread's queue. `more` is set when something was put into it."""

    name: str
    items: deque[_Item | None] = field(default_factory=deque)
    more: Flag = field(default_factory=lambda: Flag("work"))


class Simulation:
    """What both engines share (the document's `_PipelineBase`); `_main` and `_after` are the engine's own."""

    engine = ""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan
        self.host = VirtualHost()
        self.streams = stream_labels(self.plan)
        self.spans: list[Span] = []
        self.retired: list[int] = []
        self._free = dict.fromkeys(self.streams.values(), 0)
        self._ends: dict[tuple[str, int], int] = {}
        self._submitted: dict[tuple[str, int], Flag] = {}
        self._turns = 0
        self._turn = 0
        self._turn_flags: dict[int, Flag] = {}
        self._groups = {s.thread_group: _Group(s.thread_group) for s in self.plan.schedule.values()}
        self._left = [len(self.plan.schedule)] * work.iterations
        self._complete = [Flag(f"iteration {i} to be submitted") for i in range(work.iterations)]
        self._iteration_end = [0] * work.iterations

    def run(self) -> Timeline:
        """Simulate. DeadlockError where the order given lets the engine hang."""
        self.host.start("caller", self._main())
        for group in self._groups.values():
            self.host.start(f"thread {group.name}", self._worker(group))
        self.host.run()
        return Timeline(self.engine, self.spans, tuple(self.retired))

    def _main(self) -> Thread:
        raise NotImplementedError

    def _after(self, task: str, iteration: int, asked: Sequence[Wait]) -> None:
        """The hook at the end of a submission."""

    # The caller ---------------------------------------------------------------------------------------------------

    def _retire(self, iteration: int) -> Thread:
        """What progress() does before it enqueues."""
        yield self._complete[iteration]
        if self.work.finished:
            yield self._iteration_end[iteration]
        self.retired.append(self.host.now)

    def _put(self, task: str, iteration: int, asked: Sequence[Wait]) -> None:
        """Hand a task to its group's thread. Globally ordered ones get their number here (SWP-67)."""
        settings, turn = self.plan.schedule[task], None
        if settings.globally_ordered:
            turn, self._turns = self._turns, self._turns + 1
        group = self._groups[settings.thread_group]
        group.items.append(_Item(task, iteration, asked, turn))
        self.host.set(group.more)

    def _stop(self) -> None:
        for group in self._groups.values():
            group.items.append(None)
            self.host.set(group.more)

    # The threads --------------------------------------------------------------------------------------------------

    def _worker(self, group: _Group) -> Thread:
        while True:
            while not group.items:
                group.more = Flag("work")
                yield group.more
            if (item := group.items.popleft()) is None:
                return
            waits = [*item.asked, (self.host.now, HOST, "", None)]
            yield from self._wait_for_dependencies(item, waits)
            yield from self._wait_for_turn(item, waits)
            yield self.host.now + self.work.submit_ns[item.task]
            waits.append((self.host.now, SUBMIT, item.task, item.iteration))
            self._submit(item, waits)

    def _wait_for_dependencies(self, item: _Item, waits: list[Wait]) -> Thread:
        """Phase 1. Iteration 0 has no predecessor and waits for none (SWP-10)."""
        for task, iteration in self._dependencies(item.task, item.iteration):
            yield self._flag(task, iteration)
            waits.append((self.host.now, SIGNAL, task, iteration))

    def _wait_for_turn(self, item: _Item, waits: list[Wait]) -> Thread:
        if item.turn is not None and item.turn > self._turn:
            yield self._turn_flags.setdefault(item.turn, Flag(f"turn {item.turn} of the ordered tasks"))
            waits.append((self.host.now, ORDER, "", None))

    def _submit(self, item: _Item, waits: list[Wait]) -> None:
        """Phase 2, the task on its stream, the signal, the next turn, the hook."""
        self._launch(item.task, item.iteration, waits)
        self.host.set(self._flag(item.task, item.iteration))
        if item.turn is not None:
            self._turn += 1
            if flag := self._turn_flags.pop(self._turn, None):
                self.host.set(flag)
        self._after(item.task, item.iteration, waits)
        self._left[item.iteration] -= 1
        if not self._left[item.iteration]:
            self.host.set(self._complete[item.iteration])

    def _launch(self, task: str, iteration: int, waits: list[Wait]) -> None:
        stream = self.streams[task]
        events = [(self._ends[dep], EVENT, *dep) for dep in self._dependencies(task, iteration)]
        stalls, start = stalls_between(self._free[stream], [*waits, *sorted(events)])
        end = start + self.work.durations[task][iteration]
        self.spans.append(Span(task, iteration, stream, self.host.now, start, end, stalls))
        self._free[stream] = self._ends[task, iteration] = end
        self._iteration_end[iteration] = max(self._iteration_end[iteration], end)

    def _dependencies(self, task: str, iteration: int) -> list[tuple[str, int]]:
        deps = [(dep, iteration) for dep in self.plan.intra[task]]
        if iteration:
            deps += [(dep, iteration - 1) for dep in self.plan.inter[task]]
        return deps

    def _flag(self, task: str, iteration: int) -> Flag:
        key = (task, iteration)
        if key not in self._submitted:
            self._submitted[key] = Flag(f"{task} i{iteration}")
        return self._submitted[key]


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
    """DataFlowPipeline: a task fires when its dependencies were submitted and its iteration is in flight (SWP-55).

    At most `max_depth` iterations are in flight, so the document's second condition (fewer than `max_depth` pending
    submissions of the task) never decides anything that the third (the context exists) does not; `peak_pending` lets a
    test see that (trap T10). Globally ordered tasks fire iteration by iteration, in the order of the plan's serial run:
    fired as they become ready, one could wait for its turn before one that it keeps from being submitted.
    """

    engine = "DataFlowPipeline"

    def __init__(self, work: Work, order: Sequence[str], max_depth: int) -> None:
        super().__init__(work)
        self._order, self._max_depth = order, max_depth
        self._created = 0
        self._fired: set[tuple[str, int]] = set()
        self._done: set[tuple[str, int]] = set()
        self.peak_pending = 0
        self._ordered = [task for task in order if self.plan.schedule[task].globally_ordered]
        self._then_same = {t: [u for u in work.plan.names if t in work.plan.intra[u]] for t in order}
        self._then_next = {t: [u for u in work.plan.names if t in work.plan.inter[u]] for t in order}

    def _main(self) -> Thread:
        self._advance(0, ())
        for iteration in range(self.work.iterations):
            yield from self._retire(iteration)
            self._advance(iteration + 1, [(self.host.now, RETIRE, "", iteration)])
        self._stop()

    def _advance(self, oldest: int, asked: Sequence[Wait]) -> None:
        """New iterations up to the limit; each fires what it can at once (the burst, SWP-57)."""
        while self._created < min(oldest + self._max_depth, self.work.iterations):
            self._created += 1
            self.peak_pending = max(self.peak_pending, self._created - oldest)
            for task in self._order:
                self._try_fire(task, self._created - 1, asked)

    def _after(self, task: str, iteration: int, asked: Sequence[Wait]) -> None:
        self._done.add((task, iteration))
        asked = lengthening(asked)[-_KEPT_WAITS:]
        for follower in self._then_same[task]:
            self._try_fire(follower, iteration, asked)
        for follower in self._then_next[task]:
            self._try_fire(follower, iteration + 1, asked)

    def _try_fire(self, task: str, iteration: int, asked: Sequence[Wait]) -> None:
        if iteration >= self._created or (task, iteration) in self._fired or not self._is_next(task, iteration):
            return
        if not self._done.issuperset(self._dependencies(task, iteration)):
            return
        self._fired.add((task, iteration))
        self._put(task, iteration, asked)
        if self.plan.schedule[task].globally_ordered:
            later, place = divmod(self._turns, len(self._ordered))
            self._try_fire(self._ordered[place], later, asked)

    def _is_next(self, task: str, iteration: int) -> bool:
        if not self.plan.schedule[task].globally_ordered:
            return True
        return self._turns == iteration * len(self._ordered) + self._ordered.index(task)


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


def stalls_between(free_ns: int, waits: Sequence[Wait]) -> tuple[tuple[Stall, ...], int]:
    """From what held a task up, in order of time: the stalls of a stream that is free from `free_ns`, and the start."""
    stalls, at = [], free_ns
    for until, kind, task, iteration in waits:
        if until > at:
            stalls.append(Stall(kind, until - at, task, iteration))
            at = until
    return tuple(stalls), at


def lengthening(waits: Sequence[Wait]) -> list[Wait]:
    """Those waits that made the host later than it was already."""
    kept: list[Wait] = []
    for wait in waits:
        if not kept or wait[0] > kept[-1][0]:
            kept.append(wait)
    return kept


def stream_labels(plan: CheckedPlan) -> dict[str, str]:
    """A printable name for every task's stream: its name, or `stream1`, `stream2` … for stream objects."""
    labels: dict[object, str] = {}
    for name in plan.names:
        stream = plan.stream(name)
        if stream not in labels:
            objects = sum(not isinstance(known, str) for known in labels)
            labels[stream] = stream if isinstance(stream, str) else f"stream{objects + 1}"
    return {name: labels[plan.stream(name)] for name in plan.names}
