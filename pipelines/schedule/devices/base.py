"""What an engine asks of a device: streams, events, waiting, names for profilers, and a clock.

The rules are CUDA's. Work on one stream runs in the order in which it was launched. An event marks the point its stream
had reached when it was recorded; a stream that waits for it starts no later work before that point is passed. An event
that was never recorded holds nobody up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Work:
    """Which task of which iteration a launch is. `skipped` = its shortcut is replayed instead of its function."""

    task: str
    iteration: int
    skipped: bool = False
    prefix: str = "SWP"  # "SWP_serial" in serial runs

    @property
    def label(self) -> str:
        """The name in profiler traces (SWP-40, SWP-41)."""
        skip = " [skip]" if self.skipped else ""
        return f"{self.prefix}/{self.task}/iter{self.iteration}{skip}"


class Device(ABC):
    """One device. Streams and events are its own objects; an engine only hands them back.

    Calls come from several threads: the caller's and one for each thread group.
    """

    name: str  # as it is printed: 0, "cpu"
    runs_later = False  # launch() returns before the body ran (True) or after it (False)

    @abstractmethod
    def stream(self, wanted: Any) -> Any:
        """The stream for TaskSchedule.stream: None = default; a name becomes one stream; a stream object is itself.

        Raises TypeError for an object that is not a stream of this device.
        """

    @abstractmethod
    def stream_name(self, stream: Any) -> str | None:
        """The name to print, None for a stream that was made without a name."""

    @abstractmethod
    def event(self) -> Any:
        """A new event; it may be recorded again and again."""

    @abstractmethod
    def record(self, event: Any, stream: Any) -> None:
        """Let the event mark all work launched on the stream so far."""

    @abstractmethod
    def wait(self, stream: Any, event: Any) -> None:
        """Hold later work of the stream until the event's last record is reached. Does not block the caller."""

    @abstractmethod
    def launch(self, stream: Any, body: Callable[[], None], work: Work) -> None:
        """Run `body` on the stream. `body` never raises."""

    @abstractmethod
    def run_here(self, body: Callable[[], None], work: Work) -> None:
        """Run `body` in the calling thread on the default stream, for serial runs. What it raises passes through."""

    @abstractmethod
    def join(self, event: Any, timeout_s: float) -> bool:
        """Put the caller after the event; False when that took longer than `timeout_s`.

        CUDA: the caller's current stream waits, the caller itself does not. Where the bodies run in threads: the caller
        waits.
        """

    @abstractmethod
    def synchronize(self, streams: Iterable[Any] = ()) -> None:
        """Return when all work of the device (at least that of `streams`) is done."""

    @abstractmethod
    def clock(self) -> float:
        """Seconds, for durations. A simulated device gives its own time."""

    def keep_alive(self, values: dict[str, Any], stream: Any) -> None:  # noqa: B027
        """Memory of tensors in `values` must not be reused before the stream's present and next work is done."""

    def current_stream(self) -> Any:
        """The stream of work that the caller launches itself; None if it does that without one."""
        return None

    def open_thread(self, profile: bool) -> AbstractContextManager:
        """Entered by each thread that submits work. `profile` = run(emit_nvtx=True)."""
        return nullcontext()

    def close(self, streams: Iterable[Any], timeout_s: float) -> list[str]:
        """End what the device keeps running for these streams; they can be used again. Returns what did not end."""
        return []
