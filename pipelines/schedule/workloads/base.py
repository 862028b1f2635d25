"""The interface that every workload offers a runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any

import torch

from pipelines.schedule.plan.plan import DeclaredIO, PipelineTask


class Workload(ABC):
    """A model in training: its tasks share the weights, and everything else goes through the iteration's context.

    The seed determines weights, data and their order. A plan that keeps the tasks' dependencies trains the same as a
    serial run: to the last bit on a CPU, up to the order of atomic additions on a GPU.
    """

    sizes: Mapping[str, Any]  # the shapes of each of workloads.SIZES

    def __init__(self, device: Any, seed: int) -> None:
        self.device = torch.device(device)
        self.losses: list[torch.Tensor] = []  # one loss per iteration, on the device: reading it blocks
        self._host = torch.Generator().manual_seed(seed)
        self._pool: list[Any] = []

    @abstractmethod
    def tasks(self) -> list[PipelineTask]:
        """Returns the tasks, in the order of one serial iteration."""

    @abstractmethod
    def weights(self) -> dict[str, torch.Tensor]:
        """Returns all trained parameters, by name."""

    def batches(self, n: int) -> Iterator[Any]:
        """Returns n batches in host memory: a few, repeated."""
        return islice(cycle(self._pool), n)

    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Pin the memory where there is a GPU: a copy from pageable memory cannot overlap with the host."""
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the tensor on the device; a real copy also on a CPU."""
        return tensor.to(self.device, non_blocking=True, copy=True)


def gradients(parameters: Iterable[torch.Tensor]) -> DeclaredIO:
    """What a Backward leaves outside its context: a replayed one must leave the optimizer something to work on."""
    kept = list(parameters)

    def restore(gradients: list[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(kept, gradients, strict=True):
            parameter.grad = gradient

    return DeclaredIO(capture=lambda: [parameter.grad for parameter in kept], restore=restore)
