"""The interface of a device: streams, events, waiting, names for profilers, and a clock.

The rules are CUDA's. Work on one stream runs in the order in which it was launched. An event marks the point its stream
had reached when it was recorded; a stream that waits for the event starts no later work until that point is reached. An
event that was never recorded blocks nobody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Work:
    """The task and iteration of a launch. `skipped`: its shortcut is replayed instead of calling its function."""

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
    """One device. Streams and events are objects of its own; an engine only passes them back.

    Methods are called from several threads: the caller's and one per thread group.
    """

    name: str  # as printed: 0, "cpu"
    runs_later = False  # launch() returns before the body ran (True) or after it (False)

    @abstractmethod
    def stream(self, wanted: Any) -> Any:
        """Returns the stream for TaskSchedule.stream: None = default; a name = one stream per name; a stream object =
        itself.

        Raises TypeError for an object that is not a stream of this device.
        """

    @abstractmethod
    def stream_name(self, stream: Any) -> str | None:
        """Returns the name to print; None for a stream that was made without a name."""

    @abstractmethod
    def event(self) -> Any:
        """Returns a new event; it may be recorded repeatedly."""

    @abstractmethod
    def record(self, event: Any, stream: Any) -> None:
        """Record the event: it marks all work launched on the stream so far."""

    @abstractmethod
    def wait(self, stream: Any, event: Any) -> None:
        """Hold later work of the stream until the event's last record is reached. Does not block the caller."""

    @abstractmethod
    def launch(self, stream: Any, body: Callable[[], None], work: Work) -> None:
        """Run `body` on the stream. `body` never raises."""

    @abstractmethod
    def run_here(self, body: Callable[[], None], work: Work) -> None:
        """Run `body` in the calling thread on the default stream, for serial runs. Its exceptions pass through."""

    @abstractmethod
    def join(self, event: Any, timeout_s: float) -> bool:
        """Make the caller wait for the event. Returns False when that took longer than `timeout_s`.

        On CUDA only the caller's current stream waits and the call returns at once. Where bodies run in threads, the
        call blocks.
        """

    @abstractmethod
    def synchronize(self, streams: Iterable[Any] = ()) -> None:
        """Block until all work of the device (at least that of `streams`) is done."""

    @abstractmethod
    def clock(self) -> float:
        """Returns seconds, for durations. A simulated device returns its own time."""

    def keep_alive(self, values: dict[str, Any], stream: Any) -> None:  # noqa: B027
        """Keep the memory of the tensors in `values` from being reused before the stream's present and next work is
        done.
        """

    def current_stream(self) -> Any:
        """Returns the stream of work that the caller launches itself; None if the caller uses no stream."""
        return None

    def open_thread(self, profile: bool) -> AbstractContextManager:
        """Entered by each thread that submits work. `profile` = run(emit_nvtx=True)."""
        return nullcontext()

    def close(self, streams: Iterable[Any], timeout_s: float) -> list[str]:
        """End what the device keeps running for these streams, which can be used again. Returns what did not end."""
        return []
