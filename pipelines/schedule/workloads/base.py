"""What every workload offers a runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import Any

import torch

from pipelines.schedule.plan import DeclaredIO, PipelineTask


class Workload(ABC):
    """A model in training: its tasks share the weights, and everything else goes through the iteration's context.

    Weights, data and their order follow from the seed. A plan that keeps the tasks' dependencies trains the same as a
    serial run: to the last bit on a CPU, up to the order of atomic additions on a GPU.
    """

    def __init__(self, device: Any, seed: int) -> None:
        self.device = torch.device(device)
        self.losses: list[torch.Tensor] = []  # of every iteration, on the device: reading one waits for it
        self._host = torch.Generator().manual_seed(seed)
        self._pool: list[Any] = []

    @abstractmethod
    def tasks(self) -> list[PipelineTask]:
        """The tasks, in the order of one serial iteration."""

    @abstractmethod
    def weights(self) -> dict[str, torch.Tensor]:
        """Everything that is trained, by name."""

    def batches(self, n: int) -> Iterator[Any]:
        """n batches in host memory: a few, again and again."""
        return islice(cycle(self._pool), n)

    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Page-locked where there is a GPU: from other memory a copy cannot run beside the host."""
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the device. A real copy on a CPU too."""
        return tensor.to(self.device, non_blocking=True, copy=True)


def gradients(parameters: Iterable[torch.Tensor]) -> DeclaredIO:
    """What a Backward leaves outside its context: replayed, it must leave the optimizer something to work on."""
    kept = list(parameters)

    def restore(gradients: list[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(kept, gradients, strict=True):
            parameter.grad = gradient

    return DeclaredIO(capture=lambda: [parameter.grad for parameter in kept], restore=restore)
