"""Interface of all workloads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any, ClassVar

import torch

from pipelines.schedule.plan.plan import DeclaredIO, IterContext, PipelineTask


class Workload(ABC):
    """A model in training. Its tasks share the weights and pass all other data through the iteration's context.

    The seed determines weights, data and their order. A plan that keeps the tasks' dependencies yields the same weights
    as a serial run. They are equal to the last bit on a CPU, and up to the order of atomic additions on a GPU.
    """

    sizes: ClassVar[Mapping[str, Any]]  # shapes by size name (workloads.SIZES)

    def __init__(self, device: Any, seed: int) -> None:
        self.device = torch.device(device)
        self.losses: list[torch.Tensor] = []  # one loss per iteration, on the device, so reading it blocks
        self._host = torch.Generator().manual_seed(seed)
        self._pool: list[Any] = []

    @abstractmethod
    def tasks(self) -> list[PipelineTask]:
        """Return the tasks, in the order of one serial iteration."""

    @abstractmethod
    def weights(self) -> dict[str, torch.Tensor]:
        """Return all trained parameters, by name."""

    def batches(self, n: int) -> Iterator[Any]:
        """Return n batches in host memory, which repeat a few batches."""
        return islice(cycle(self._pool), n)

    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor in pinned memory if the device is a GPU. Copies from pageable memory block the host."""
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of the tensor on the device, also if the device is the CPU."""
        return tensor.to(self.device, non_blocking=True, copy=True)


class TrainedModel(Workload):
    """A workload with one model, one optimizer, and the usual Backward and OptimizerStep. Forward sets `ctx.loss`."""

    def __init__(self, device: Any, seed: int, make: Callable[[], torch.nn.Sequential]) -> None:
        """Create the model with `make`, whose random numbers follow from the seed, and its optimizer."""
        super().__init__(device, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = make().to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def _backward(self, ctx: IterContext) -> None:
        ctx.loss.backward()
        self.losses.append(ctx.loss.detach())

    def _step(self, ctx: IterContext) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def gradients(parameters: Iterable[torch.Tensor]) -> DeclaredIO:
    """Return the effect of a Backward outside its context: a replay must restore the gradients for the optimizer."""
    all_parameters = list(parameters)

    def restore(gradients: list[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(all_parameters, gradients, strict=True):
            parameter.grad = gradient

    return DeclaredIO(capture=lambda: [parameter.grad for parameter in all_parameters], restore=restore)
