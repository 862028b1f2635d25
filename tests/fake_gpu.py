"""A stand-in for the GPU of torch.cuda, for code that only runs on CUDA. Only `sleep` takes time on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch


class FakeGpu:
    """A GPU. `now_ms`: its clock, which the test, `sleep` or `launch` moves. `n_waits`: how often the host waited for it.

    `host_ms`: the host's clock. Work begins when the host has launched it and the work before it is done.
    """

    def __init__(self) -> None:
        self.now_ms = self.host_ms = 0.0
        self.n_waits = self.n_sleeps = 0
        self.is_idle, self.is_capturing = True, False
        self.current: Any = None  # the argument of torch.cuda.set_device
        self.stream = FakeStream()

    def sleep(self, cycles: int) -> None:
        """Occupy the device for one ms per two million cycles. During the first call the GPU runs at half its rate."""
        self.launch(0, cycles / (2e6 if self.n_sleeps else 1e6))
        self.n_sleeps += 1

    def launch(self, host_ms: float, takes_ms: float) -> None:
        """Launch work: the host needs `host_ms` for it, the device then `takes_ms`."""
        self.host_ms += host_ms
        self.now_ms = self.reached_ms() + takes_ms

    def reached_ms(self) -> float:
        """Return the time when the device has done all that the host has launched by now."""
        return max(self.now_ms, self.host_ms)

    def wait(self, device: Any = None) -> None:
        self.n_waits += 1
        self.host_ms = self.reached_ms()


class FakeStream:
    """A stream that records the streams for which it waits."""

    def __init__(self, device: Any = None) -> None:
        self.waited_for: list[Any] = []

    def wait_stream(self, stream: Any) -> None:
        self.waited_for.append(stream)

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for: the device does one thing after the other."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Replace torch.cuda by one fake GPU, and return the GPU."""
    gpu = FakeGpu()

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            self.is_timed, self.at_ms = enable_timing, 0.0

        def record(self, stream: Any = None) -> None:
            self.at_ms = gpu.reached_ms()

        def query(self) -> bool:
            return gpu.is_idle

        def synchronize(self) -> None:
            gpu.wait()

        def elapsed_time(self, later: Event) -> float:
            assert self.is_timed and later.is_timed
            return later.at_ms - self.at_ms

    @contextlib.contextmanager
    def on(stream: Any) -> Iterator[None]:
        yield

    properties = SimpleNamespace(total_memory=80 << 30, multi_processor_count=132)
    fakes = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: setattr(gpu, "current", device),
        "default_stream": lambda device=None: gpu.stream,
        "current_stream": lambda device=None: gpu.stream,
        "Stream": FakeStream,
        "Event": Event,
        "stream": on,
        "device": lambda index: contextlib.nullcontext(),
        "synchronize": gpu.wait,
        "is_current_stream_capturing": lambda: gpu.is_capturing,
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: "NVIDIA H100 80GB HBM3",
        "_sleep": gpu.sleep,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake, raising=False)
    return gpu
