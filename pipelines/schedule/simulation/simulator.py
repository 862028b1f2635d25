"""The engines' rules on a virtual host and virtual streams.

The model includes: a caller that fills, retires and enqueues; one FIFO thread per thread group; phase 1 (the host waits
until a dependency is submitted) and phase 2 (the stream waits for its event); FIFO streams; the order of globally
ordered tasks; the in-flight limit. It does not include streams that slow each other down because they share hardware. A
task takes its declared duration on any stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.schedule.pictures.timeline import EVENT, HOST, ORDER, SIGNAL, SUBMIT, Span, Stall, Timeline
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.simulation.virtual_host import Flag, Thread, VirtualHost

Wait = tuple[int, str, str, int | None]
"""A delay: its end (ns), its kind (as in Stall), and the awaited task and iteration."""


@dataclass
class Work:
    """Input of a simulated run: plan, durations (ns, by task and iteration), and host time of submissions (ns)."""

    plan: CheckedPlan
    durations: dict[str, list[int]]
    iterations: int
    submit_ns: dict[str, int]
    finished: bool
    """Whether progress() returns when the iteration is finished, instead of when its last task was submitted."""


@dataclass(slots=True)
class _Item:
    """One entry of a thread group's queue."""

    task: str
    iteration: int
    asked: Sequence[Wait]
    """Delays of the request for this task, by the caller or by the task that fired it."""
    turn: int | None
    previous: tuple[str, int] | None
    """The previous (task, iteration) on its stream if another thread submits it, else None."""


@dataclass(slots=True)
class _Group:
    """One host thread's queue. `more` is set when an item is added."""

    name: str
    items: deque[_Item | None] = field(default_factory=deque)
    more: Flag = field(default_factory=lambda: Flag("work"))


class Simulation:
    """Base of all simulations (the document's `_PipelineBase`). `_main` and `_after` differ by engine."""

    engine = ""

    def __init__(self, work: Work, order: Sequence[str] = ()) -> None:
        self.work, self.plan, self.order = work, work.plan, order
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
        """Run the simulation and return its timeline. Raise DeadlockError if the engine hangs."""
        self.host.start("caller", self._main())
        for group in self._groups.values():
            self.host.start(f"thread {group.name}", self._worker(group))
        self.host.run()
        return Timeline(self.engine, self.spans, tuple(self.retired))

    def _main(self) -> Thread:
        raise NotImplementedError

    def _after(self, task: str, iteration: int, delays: Sequence[Wait]) -> None:
        """Do nothing at the end of a submission. Engines override this hook. `delays`: the submission's delays."""

    # The caller ---------------------------------------------------------------------------------------------------

    def _retire(self, iteration: int) -> Thread:
        """Run the first part of progress(), before it enqueues: wait for the iteration and retire it."""
        yield self._complete[iteration]
        if self.work.finished:
            yield self._iteration_end[iteration]
        self.retired.append(self.host.now)

    def _put(self, task: str, iteration: int, delays: Sequence[Wait], previous: tuple[str, int] | None = None) -> None:
        """Queue a task for its group's thread. A globally ordered task gets its number here."""
        settings, turn = self.plan.schedule[task], None
        if settings.globally_ordered:
            turn, self._turns = self._turns, self._turns + 1
        group = self._groups[settings.thread_group]
        group.items.append(_Item(task, iteration, delays, turn, previous))
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
        """Run phase 1: wait until dependencies and the stream's previous task are submitted. Append to `waits`."""
        previous = [] if item.previous is None else [item.previous]
        for task, iteration in [*self.plan.dependencies(item.task, item.iteration), *previous]:
            yield self._flag(task, iteration)
            waits.append((self.host.now, SIGNAL, task, iteration))

    def _wait_for_turn(self, item: _Item, waits: list[Wait]) -> Thread:
        if item.turn is not None and item.turn > self._turn:
            yield self._turn_flags.setdefault(item.turn, Flag(f"turn {item.turn} of the ordered tasks"))
            waits.append((self.host.now, ORDER, "", None))

    def _submit(self, item: _Item, waits: list[Wait]) -> None:
        """Run phase 2: launch the task on its stream, set its signal, start the next turn and call the hook."""
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
        events = [(self._ends[dep], EVENT, *dep) for dep in self.plan.dependencies(task, iteration)]
        stalls, start = stalls_between(self._free[stream], [*waits, *sorted(events)])
        end = start + self.work.durations[task][iteration]
        self.spans.append(Span(task, iteration, stream, self.host.now, start, end, stalls))
        self._free[stream] = self._ends[task, iteration] = end
        self._iteration_end[iteration] = max(self._iteration_end[iteration], end)

    def _flag(self, task: str, iteration: int) -> Flag:
        key = (task, iteration)
        if key not in self._submitted:
            self._submitted[key] = Flag(f"{task} i{iteration}")
        return self._submitted[key]


def stalls_between(free_ns: int, waits: Sequence[Wait]) -> tuple[tuple[Stall, ...], int]:
    """Return a stream's stalls before a task, and the task's start, ns.

    The stream is free after `free_ns`. `waits`: the delays of the task, in order of time.
    """
    stalls, start = [], free_ns
    for until, kind, task, iteration in waits:
        if until > start:
            stalls.append(Stall(kind, until - start, task, iteration))
            start = until
    return tuple(stalls), start


def stream_labels(plan: CheckedPlan) -> dict[str, str]:
    """Return a printable name of every task's stream: its name, or `stream1`, `stream2` … for stream objects."""
    labels: dict[object, str] = {}
    for name in plan.names:
        stream = plan.stream(name)
        if stream not in labels:
            objects = sum(not isinstance(labeled, str) for labeled in labels)
            labels[stream] = stream if isinstance(stream, str) else f"stream{objects + 1}"
    return {name: labels[plan.stream(name)] for name in plan.names}
