"""A multi-layer perceptron: copy → forward → backward → optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import Workload, gradients


@dataclass(frozen=True)
class MlpSize:
    """Shapes. Floating-point operations per iteration: about 6 · batch · width² · layers."""

    batch: int
    width: int
    layers: int


SIZES = {
    "tiny": MlpSize(batch=16, width=32, layers=2),
    "small": MlpSize(batch=128, width=512, layers=4),
    "large": MlpSize(batch=8192, width=8192, layers=8),  # 26 Tflop, 256 MiB of input, 2 GiB of weights
}


class Mlp(Workload):
    """Regression on the output of a fixed random layer."""

    sizes = SIZES

    def __init__(self, size: MlpSize, device: Any, seed: int) -> None:
        super().__init__(device, seed)
        teacher = torch.randn(size.width, 1, generator=self._host) / size.width**0.5
        for _ in range(4):
            inputs = torch.randn(size.batch, size.width, generator=self._host)
            self._pool.append((self._pinned(inputs), self._pinned(torch.tanh(inputs @ teacher))))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = [part for _ in range(size.layers) for part in (nn.Linear(size.width, size.width), nn.ReLU())]
            self.model = nn.Sequential(*layers, nn.Linear(size.width, 1)).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("CopyBatch", self._copy, writes=("inputs", "target")),
            PipelineTask("Forward", self._forward, reads=("inputs", "target"), writes=("loss",)),
            PipelineTask("Backward", self._backward, [gradients(self.model.parameters())], reads=("loss",)),
            PipelineTask("OptimizerStep", self._step),
        ]

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def _copy(self, ctx: IterContext) -> None:
        inputs, target = ctx.batch
        ctx.inputs, ctx.target = self._copied(inputs), self._copied(target)

    def _forward(self, ctx: IterContext) -> None:
        ctx.loss = nn.functional.mse_loss(self.model(ctx.inputs), ctx.target)

    def _backward(self, ctx: IterContext) -> None:
        ctx.loss.backward()
        self.losses.append(ctx.loss.detach())

    def _step(self, ctx: IterContext) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
