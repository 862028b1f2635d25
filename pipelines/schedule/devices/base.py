"""Interface of a device: streams, events, waiting, names for profilers, and a clock.

The rules are CUDA's. Work on one stream runs in the order in which it was launched. Recording an event marks the point
after all work launched on the stream so far. A stream that waits for the event starts no later work until that point is
reached. An event that was never recorded blocks no stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Work:
    """Task and iteration of a launch. `skipped`: whether the shortcut is replayed instead of calling the function."""

    task: str
    iteration: int
    skipped: bool = False
    prefix: str = "SWP"  # "SWP_serial" in serial runs

    @property
    def label(self) -> str:
        """Return the name in profiler traces."""
        skip = " [skip]" if self.skipped else ""
        return f"{self.prefix}/{self.task}/iter{self.iteration}{skip}"


class Device(ABC):
    """Base class of devices. Streams and events are opaque objects that an engine only passes back to the device.

    Several threads call the methods: the engine's caller and one thread per thread group.
    """

    name: str  # printed name, such as "0" or "cpu"
    runs_later = False  # whether launch() returns before the body has run

    @abstractmethod
    def stream(self, wanted: Any) -> Any:
        """Return the stream for a value of TaskSchedule.stream.

        None is the default stream, a name always the same stream, and a stream object is returned unchanged. Raises
        TypeError if `wanted` is an object that is not a stream of this device.
        """

    @abstractmethod
    def stream_name(self, stream: Any) -> str | None:
        """Return the name to print, or None if the stream was created without a name."""

    @abstractmethod
    def event(self) -> Any:
        """Return a new event, which may be recorded repeatedly."""

    @abstractmethod
    def record(self, event: Any, stream: Any) -> None:
        """Record the event, so that it marks all work launched on the stream so far."""

    @abstractmethod
    def wait(self, stream: Any, event: Any) -> None:
        """Delay later work of the stream until the event's last record is reached. Does not block the caller."""

    @abstractmethod
    def launch(self, stream: Any, body: Callable[[], None], work: Work) -> None:
        """Run `body` on the stream. `body` never raises."""

    @abstractmethod
    def run_here(self, body: Callable[[], None], work: Work) -> None:
        """Run `body` in the calling thread on the default stream, for serial runs. Its exceptions pass through."""

    @abstractmethod
    def join(self, event: Any, timeout_s: float) -> bool:
        """Make the caller wait for the event. Return False if that takes longer than `timeout_s` seconds.

        On CUDA, only the caller's current stream waits, and the call returns immediately. On devices whose bodies run
        in threads, the call blocks.
        """

    @abstractmethod
    def synchronize(self, streams: Iterable[Any] = ()) -> None:
        """Block until all work of the device, at least the work on `streams`, is done."""

    @abstractmethod
    def clock(self) -> float:
        """Return a time in seconds, for durations. A simulated device returns virtual time."""

    def keep_alive(self, values: dict[str, Any], stream: Any) -> None:  # noqa: B027
        """Prevent reuse of the memory of the tensors in `values` before the stream's current and next work ends."""

    def made_on(self, stream: Any, values: dict[str, Any]) -> None:  # noqa: B027
        """Note that a task of the stream made the tensors in `values`, so that `keep_alive` need not keep them for it."""

    def holds(self, values: dict[str, Any]) -> bool:
        """Return whether tensors in `values` are in the device's memory, so that launched work may still write them."""
        return False

    def current_stream(self) -> Any:
        """Return the stream of work that the caller launches itself, or None if the device has no current stream."""
        return None

    def open_thread(self, profile: bool) -> AbstractContextManager:
        """Return a context that each submitting thread enters. `profile`: whether run() got emit_nvtx=True."""
        return nullcontext()

    def close(self, streams: Iterable[Any], timeout_s: float) -> list[str]:
        """End the threads that run these streams, within `timeout_s`. Return the names of threads that still run.

        The streams stay usable.
        """
        return []
