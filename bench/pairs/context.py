"""The context of a program: device, sizes, variant, and streams, events and graphs that also work without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch

from bench.pairs.sizes import Sizes

T = TypeVar("T")


class NoStream:
    """The stream of a device without streams, where all work is done when its call returns."""

    def wait_stream(self, stream: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def synchronize(self) -> None: ...


class NoEvent:
    """The event of a device without streams."""

    def record(self, stream: object = None) -> None: ...

    def wait(self, stream: object = None) -> None: ...

    def synchronize(self) -> None: ...


class Context:
    """One variant of a program on one device. `changed` is False for A and True for B."""

    def __init__(self, device: str, sizes: Sizes, changed: bool, scratch: Path, rank: int = 0, ranks: int = 1) -> None:
        self.device, self.sizes, self.changed = device, sizes, changed
        self.scratch, self.rank, self.ranks = scratch, rank, ranks
        self.cleanup = ExitStack()  # threads and loaders that must end with the variant
        self.cuda = device == "cuda"

    def pick(self, unchanged: T, changed: T) -> T:
        return changed if self.changed else unchanged

    def randn(self, *shape: int, **options: Any) -> torch.Tensor:
        return torch.randn(*shape, device=self.device, **options)

    def sync(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def stream(self) -> Any:
        return torch.cuda.Stream() if self.cuda else NoStream()

    def main_stream(self) -> Any:
        return torch.cuda.current_stream() if self.cuda else NoStream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return torch.cuda.stream(stream) if self.cuda else nullcontext()

    def event(self) -> Any:
        return torch.cuda.Event() if self.cuda else NoEvent()

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if self.cuda else tensor

    def graph(self, work: Callable[[], object]) -> Callable[[], object]:
        """Return a function that replays `work` as a CUDA graph, or without CUDA `work` itself."""
        if not self.cuda:
            return work
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries allocate their workspaces before the capture
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            work()
        return captured.replay
