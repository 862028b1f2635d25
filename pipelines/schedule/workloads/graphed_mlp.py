"""An Mlp whose step (forward, backward, optimizer) is one CUDA graph: copy → load → step.

A graph reads fixed memory, so a task on the step's stream copies the batch there. On a CPU, the step runs without a
graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.mlp import Mlp, MlpSize

_WARM_UPS = 3


class GraphedMlp(Mlp):
    """Mlp with many small layers. Without a graph, launching them takes longer than running them."""

    sizes: ClassVar = {
        "tiny": MlpSize(batch=16, inputs=32, width=32, layers=2),
        "small": MlpSize(batch=256, inputs=2048, width=128, layers=8),
        "large": MlpSize(batch=8192, inputs=4096, width=1024, layers=24),
    }

    def __init__(self, size: MlpSize, device: Any, seed: int) -> None:
        super().__init__(size, device, seed)
        self._inputs = torch.zeros(size.batch, size.inputs, device=self.device)
        self._target = torch.zeros(size.batch, 1, device=self.device)
        self._loss = torch.zeros((), device=self.device)
        self._replay = self._captured() if self.device.type == "cuda" else self._train

    def tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("CopyBatch", self._copy, writes=("inputs", "target")),
            PipelineTask("LoadGraph", self._load, reads=("inputs", "target"), shared_writes=("graph inputs",)),
            PipelineTask("Step", self._run, shared_reads=("graph inputs",)),
        ]

    def _load(self, ctx: IterContext) -> None:
        self._inputs.copy_(ctx.inputs)
        self._target.copy_(ctx.target)

    def _run(self, ctx: IterContext) -> None:
        self._replay()
        self.losses.append(self._loss.clone())

    def _train(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(self.model(self._inputs), self._target)
        loss.backward()
        self.optimizer.step()
        self._loss.copy_(loss.detach())

    def _captured(self) -> Callable[[], None]:
        """Return a function that replays the step.

        Capturing needs warm-up steps. Their effect on weights and momenta is undone.
        """
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                self._train()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._train()
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(value)
                self.optimizer.state[parameter]["momentum_buffer"].zero_()
        return graph.replay
