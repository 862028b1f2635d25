"""What a pipeline did or would do: one span per task and iteration, and why its stream was idle before it.

Times are integer nanoseconds since the run's start. The simulator and the recorder of real runs both produce these
classes, and everything that reads a timeline (predict, gantt) takes either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

RETIRE = "retire"
"""progress() had not yet retired the iteration whose place this one takes: the in-flight limit (back-pressure)."""
HOST = "host"
"""The thread of the task's group was submitting something else."""
SIGNAL = "signal"
"""Phase 1: the host waited until a dependency was submitted."""
ORDER = "order"
"""The host waited for its turn among the globally ordered tasks."""
SUBMIT = "submit"
"""The submission itself took that long."""
EVENT = "event"
"""Phase 2: the stream waited for a dependency's event."""
KINDS = (RETIRE, HOST, SIGNAL, ORDER, SUBMIT, EVENT)


@dataclass(frozen=True, slots=True)
class Stall:
    """A stretch in which a stream was idle, and what it waited for."""

    kind: str
    """One of KINDS."""
    ns: int
    task: str = ""
    """The task that was waited for; empty if it was not a single one."""
    iteration: int | None = None

    @property
    def short(self) -> str:
        """Returns e.g. `event: Backward i3`, `retire: i2`, `host`."""
        on = self.task if self.iteration is None else f"{self.task} i{self.iteration}".strip()
        return f"{self.kind}: {on}" if on else self.kind

    def __str__(self) -> str:
        """Returns e.g. `event: Backward i3, 1200 ns`."""
        return f"{self.short}, {self.ns} ns"


@dataclass(frozen=True, slots=True)
class Span:
    """One task of one iteration on its stream."""

    task: str
    iteration: int
    stream: str
    submit_ns: int
    """When the host had handed it to the stream."""
    start_ns: int
    end_ns: int
    stalls: tuple[Stall, ...] = ()
    """What the stream waited for between its previous work (or the run's start) and `start_ns`, in order of time."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def stall_ns(self) -> int:
        """Returns how long the stream was idle before this span."""
        return sum(stall.ns for stall in self.stalls)

    @property
    def cause(self) -> Stall | None:
        """Returns the longest stall (the later of two equal ones); None if the stream was not idle."""
        return max(reversed(self.stalls), key=lambda stall: stall.ns, default=None)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A whole run. Spans are in submission order."""

    engine: str
    spans: Sequence[Span]
    retired_ns: Sequence[int] = field(default_factory=tuple)
    """When progress() returned iteration 0, 1, …; empty in recordings without it."""

    @property
    def streams(self) -> list[str]:
        """Returns the names of the streams, by first use."""
        return list(dict.fromkeys(span.stream for span in self.spans))

    @property
    def end_ns(self) -> int:
        """Returns the end of the last span; 0 for an empty run."""
        return max((span.end_ns for span in self.spans), default=0)

    def of(self, task: str) -> list[Span]:
        """Returns the spans of one task, by iteration."""
        return sorted((span for span in self.spans if span.task == task), key=lambda span: span.iteration)

    def completions(self) -> list[int]:
        """Returns the end of every iteration's last task, by iteration."""
        ends: dict[int, int] = {}
        for span in self.spans:
            ends[span.iteration] = max(ends.get(span.iteration, 0), span.end_ns)
        return [ends[i] for i in sorted(ends)]
