"""State of an engine: its plan with all names resolved, and the progress of the run."""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from pipelines.schedule.devices import resolve_device
from pipelines.schedule.engine.lanes import Item
from pipelines.schedule.engine.modes import Modes, profiler_misses_threads
from pipelines.schedule.engine.order import serial_order
from pipelines.schedule.engine.rank_agreement import Agreement
from pipelines.schedule.engine.sequencer import _SubmissionSequencer
from pipelines.schedule.engine.shortcut import Shortcuts
from pipelines.schedule.engine.slots import Slots
from pipelines.schedule.errors import PipelineError, PlanWarning
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import IterContext, PipelinePlan, PipelineTask

ABANDONED = object()
"""Queue item for a thread whose engine was garbage-collected."""


class _Run:
    """One run, from filling the pipeline to the end.

    A thread that outlives a stop keeps its failed run, so it can never disturb a later run.
    """

    def __init__(self, modes: Modes | None = None) -> None:
        self.failure: PipelineError | None = None
        self.inside: dict[str, int] = {}  # task -> iteration, for the functions that run at the moment
        self.modes = modes or Modes()  # modes of the caller of fill_pipeline, in which tasks run
        self.enter(Modes())

    def enter(self, thread_modes: Modes) -> None:
        """Set the modes of the thread in which tasks run next. A new thread has the default modes."""
        self.thread_modes = thread_modes
        self.must_switch = not self.modes.apply_as(thread_modes)


@dataclass(slots=True)
class _Step:
    """The data of a task that its thread needs."""

    task: PipelineTask
    stream: Any
    intra: tuple[str, ...]
    inter: tuple[str, ...]
    own_stream: frozenset[str]  # tasks on the same stream, whose order the stream keeps
    ordered: bool
    recorded: bool  # whether another stream or progress() waits for the task's event
    used: frozenset[str] | None  # the context's attributes that the task uses; None if it declares none


class _EngineState:
    """Fields of an engine, and their reset between runs."""

    signal_timeout_s = 30.0  # maximum wait of a task for a dependency, or for its turn
    progress_timeout_s = 60.0  # maximum wait of progress() for the oldest iteration
    join_timeout_s = 5.0  # maximum wait of a stop for threads that are inside a task
    _spare_slots = 1  # see slots.py

    def __init__(
        self, plan: PipelinePlan, checked: CheckedPlan, num_slots: int, device: Any = 0, process_group: Any = None
    ) -> None:
        for warning in checked.warnings:
            warnings.warn(warning, PlanWarning, stacklevel=3)
        self.plan = plan
        self.checked = checked
        self.device = resolve_device(device)
        self.leftover: list[Any] = []  # fetched batches of iterations that another rank could not start
        self._tasks: dict[str, PipelineTask] = {name: checked.tasks[name] for name in checked.schedule}
        self._streams = {name: self.device.stream(s.stream) for name, s in checked.schedule.items()}
        self._has_one_group = len({s.thread_group for s in checked.schedule.values()}) == 1
        self._tasks_run_in_caller = self._has_one_group and not self.device.runs_later
        self._sinks = _without_followers(checked)
        self._steps = _steps(checked, self._streams, self._sinks)
        self._serial_order = serial_order(checked)
        self._num_slots = num_slots
        self._shortcuts = Shortcuts()
        self._make_signals()
        self._ordered = [n for n in self._serial_order if checked.schedule[n].globally_ordered]
        self._agreement = Agreement(process_group) if self._ordered else None
        self._longest_pause = 0  # maximum pause before an iteration that the ranks compare, in periods
        self._state = "idle"  # idle | running | exhausted | failed
        self._failing = Lock()
        self._threads: list[Thread] = []
        self._queues: dict[str, SimpleQueue] = {}  # thread group -> queue of the tasks that its thread submits
        self._callers_queue: deque[Item] = deque()  # tasks that the caller submits if there is one thread group
        self._is_submitting = False  # whether the caller is submitting the tasks of its queue
        weakref.finalize(self, _abandon, self._queues).atexit = False
        self._warned: set[str] = set()
        self._emit_nvtx = False
        self._reset_state()

    def _reset_state(self) -> None:
        self._state = "idle"
        self._run = _Run()
        self._contexts: dict[int, IterContext] = {}
        self._next_iter = 0  # index of the next batch
        self._next_retire = 0
        self._exhausted = False
        self._on_retire: Callable[[IterContext], None] | None = None
        self._data_error: PipelineError | None = None  # raised when every started iteration has finished
        self._numbers: dict[
            tuple[str, int], int
        ] = {}  # globally ordered (task, iteration) -> its number in the global order
        self._next_number = 0
        self._previous: dict[
            tuple[str, int], tuple[str, int]
        ] = {}  # (task, iteration) -> the submission before it on its stream, if another thread makes it
        self._last_ordered: Any = None
        self._sequencer.timeout_s = self.signal_timeout_s
        self._sequencer.reset()
        self._slots.reset()
        self._shortcuts.forget_promises()

    def _make_signals(self) -> None:
        self._slots = Slots(list(self._tasks), self.device, self._num_slots, self._spare_slots)
        self._sequencer = _SubmissionSequencer(self.signal_timeout_s)

    def _check_started(self) -> None:
        if self._state == "exhausted":
            raise StopIteration
        if self._state == "failed":
            failure = self._run.failure
            raise PipelineError(
                f"the pipeline has stopped: {failure}. Call drain() before using it again",
                failure.task if failure else None,
                failure.iteration if failure else None,
            ) from failure
        if self._state == "idle":
            raise RuntimeError("the pipeline is empty: call fill_pipeline() before progress()")

    def _check_not_running(self, method: str) -> None:
        if self._state == "running":
            raise RuntimeError(f"{method} was called with iterations in flight: call drain() first")

    def _warn_of_modes(self) -> None:
        """Warn once about the caller's modes that do not apply in tasks, and a profiler that does not see tasks."""
        run, now = self._run.modes, Modes.current()
        if now != run:
            self._warn("modes", f"tasks run in the modes of fill_pipeline ({run}), not in those of progress ({now})")
        if self._tasks_run_in_caller:
            self._run.enter(now)
            return
        if now.foreign:
            names = ", ".join(now.foreign)
            self._warn(
                "foreign", f"{names} apply only to the calling thread, but tasks run in others: enable it inside"
            )
        if profiler_misses_threads():
            threads = "experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)"
            self._warn(
                "profiler", f"the profiler does not see tasks, because they run in other threads: pass it {threads}"
            )

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _check_in_step(self) -> None:
        lost = self._agreement.lost if self._agreement is not None else None
        if lost is not None:
            raise PipelineError(
                f"the collectives of the ranks may be out of step, because a run was stopped partway ({lost}): another run could "
                "mix the values of different iterations, and nothing would show it. Start over on all ranks with "
                "torch.distributed.destroy_process_group() and init_process_group(), or in new processes",
                getattr(lost, "task", None),
                getattr(lost, "iteration", None),
            ) from lost

    def _begin_agreement(self, *, serial: bool) -> None:
        """Start a run in which the ranks agree before each iteration.

        Collectives must be called in one order. So the globally ordered tasks and the shortcuts must be equal on all
        ranks, and either all ranks run serially or no rank does. The number of iterations in flight may differ by rank.
        """
        if self._agreement is not None:
            replayed = sorted(self._shortcuts.enabled), sorted(self._shortcuts.recorded)
            order = [(name, stage) for name, stage in self._order() if name in self._ordered]
            self._agreement.begin((order, replayed, serial))
            self._longest_pause = 1 + max(stage for _, stage in order)  # a longer pause leaves the order unchanged

    def _pause(self) -> int:
        """Return how many periods after the previous iteration the next iteration starts.

        Engines whose order of submission depends on this number override the method. If the previous iteration is
        retired, the number is at least the number of stages.
        """
        return 0

    def _order(self) -> Iterable[tuple[str, int]]:
        """Return tasks and their stages, in their submission order within one clock period."""
        raise NotImplementedError

    def _described(self, size: str) -> str:
        """Return the engine as text. `size` is the text of the maximum number of iterations in flight."""
        head = f"{type(self).__name__}(device={self.device.name}, {size}, tasks={list(self._tasks)}"
        return f"{head}, shortcuts={sorted(self._shortcuts.enabled)})"

    def _synchronize(self) -> None:
        self.device.synchronize(self._used_streams())

    def _used_streams(self) -> list[Any]:
        return list({id(s): s for s in self._streams.values()}.values())


def _abandon(queues: dict[str, SimpleQueue]) -> None:
    """Make the threads of a garbage-collected engine end.

    Any thread that collects garbage may call this, so it must not block.
    """
    for queue in queues.values():
        queue.put(ABANDONED)


def _steps(plan: CheckedPlan, streams: dict[str, Any], sinks: Iterable[str]) -> dict[str, _Step]:
    own_stream = {name: frozenset(n for n in plan.schedule if streams[n] == streams[name]) for name in plan.schedule}
    recorded = set(sinks)
    for name in plan.schedule:
        recorded |= {*plan.intra[name], *plan.inter[name]} - own_stream[name]
    return {
        name: _Step(
            plan.tasks[name],
            streams[name],
            plan.intra[name],
            plan.inter[name],
            own_stream[name],
            s.globally_ordered,
            name in recorded,
            _used(plan.tasks[name]),
        )
        for name, s in plan.schedule.items()
    }


def _used(task: PipelineTask) -> frozenset[str] | None:
    """Return the attributes that the task declares, and `batch`, which no task declares. None if it declares none."""
    return frozenset((*task.reads, *task.writes, "batch")) if task.reads or task.writes else None


def _without_followers(plan: CheckedPlan) -> list[str]:
    """Return the tasks without followers in the same iteration. When they are done, the iteration is done."""
    waited_for = {dep for deps in plan.intra.values() for dep in deps}
    return [name for name in plan.schedule if name not in waited_for]
