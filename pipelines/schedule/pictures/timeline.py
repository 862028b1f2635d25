"""Timeline of a real or simulated run: one span per task and iteration, with the stalls of its stream before it.

Times are integer nanoseconds since the run's start. The simulator and the recorder of real runs both produce these
classes, so all functions that read a timeline (predict, gantt) accept both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

RETIRE = "retire"
"""The host waited until progress() retired the iteration that this one replaces (in-flight limit, back-pressure)."""
HOST = "host"
"""The thread of the task's group was submitting another task."""
SIGNAL = "signal"
"""Phase 1: the host waited until a dependency was submitted."""
ORDER = "order"
"""The host waited for its turn among the globally ordered tasks."""
SUBMIT = "submit"
"""Duration of the submission itself."""
EVENT = "event"
"""Phase 2: the stream waited for a dependency's event."""
KINDS = (RETIRE, HOST, SIGNAL, ORDER, SUBMIT, EVENT)


@dataclass(frozen=True, slots=True)
class Stall:
    """An interval in which a stream was idle, and its cause."""

    kind: str
    """One of KINDS."""
    ns: int
    task: str = ""
    """The awaited task. Empty if the stream did not wait for a single task."""
    iteration: int | None = None

    @property
    def short(self) -> str:
        """Return a short text, such as `event: Backward i3`, `retire: i2`, `host`."""
        on = self.task if self.iteration is None else f"{self.task} i{self.iteration}".strip()
        return f"{self.kind}: {on}" if on else self.kind

    def __str__(self) -> str:
        """Return the text with the duration, such as `event: Backward i3, 1200 ns`."""
        return f"{self.short}, {self.ns} ns"


@dataclass(frozen=True, slots=True)
class Span:
    """One task of one iteration on its stream."""

    task: str
    iteration: int
    stream: str
    submit_ns: int
    """Time of the submission by the host."""
    start_ns: int
    end_ns: int
    stalls: tuple[Stall, ...] = ()
    """Stalls of the stream between its previous work (or the run's start) and `start_ns`, in order of time."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def stall_ns(self) -> int:
        """Return the idle time of the stream before this span, ns."""
        return sum(stall.ns for stall in self.stalls)

    @property
    def cause(self) -> Stall | None:
        """Return the longest stall, among equal stalls the latest, or None if the stream was not idle."""
        return max(reversed(self.stalls), key=lambda stall: stall.ns, default=None)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A complete run. Spans are in submission order."""

    engine: str
    spans: Sequence[Span]
    retired_ns: Sequence[int] = field(default_factory=tuple)
    """Times at which progress() returned iteration 0, 1, … Empty in recordings without them."""

    @property
    def streams(self) -> list[str]:
        """Return the names of the streams, in order of first use."""
        return list(dict.fromkeys(span.stream for span in self.spans))

    @property
    def end_ns(self) -> int:
        """Return the end of the last span, 0 for an empty run."""
        return max((span.end_ns for span in self.spans), default=0)

    def of(self, task: str) -> list[Span]:
        """Return the spans of one task, in order of iteration."""
        return sorted((span for span in self.spans if span.task == task), key=lambda span: span.iteration)

    def completions(self) -> list[int]:
        """Return the end of every iteration's last task, in order of iteration."""
        ends: dict[int, int] = {}
        for span in self.spans:
            ends[span.iteration] = max(ends.get(span.iteration, 0), span.end_ns)
        return [ends[i] for i in sorted(ends)]
