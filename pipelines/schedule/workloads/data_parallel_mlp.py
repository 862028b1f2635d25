"""One rank of an Mlp in data-parallel training. It reduces later layers' gradients during earlier layers' backward.

The tasks: copy → forward → backward of the upper half → its all-reduce, and backward of the lower half → its all-reduce
→ optimizer. If `torch.distributed` is initialized (torchrun), all its ranks take part in the all-reduce, otherwise only
this process.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import gradients
from pipelines.schedule.workloads.mlp import Mlp, MlpSize


class DataParallelMlp(Mlp):
    """Mlp in two halves, each with an all-reduce of its gradients."""

    def __init__(self, size: MlpSize, device: Any, seed: int) -> None:
        super().__init__(size, device, seed)
        middle = len(self.model) // 2
        self._lower, self._upper = self.model[:middle], self.model[middle:]
        self._group = _group(self.device)

    def tasks(self) -> list[PipelineTask]:
        lower, upper = [*self._lower.parameters()], [*self._upper.parameters()]
        return [
            PipelineTask("CopyBatch", self._copy, writes=("inputs", "target")),
            PipelineTask(
                "Forward", self._forward, reads=("inputs", "target"), writes=("loss", "middle", "middle_leaf")
            ),
            PipelineTask(
                "BackwardUpper",
                self._backward_upper,
                [gradients(upper)],
                reads=("loss", "middle_leaf"),
                writes=("middle_gradient",),
            ),
            PipelineTask("AllReduceUpper", lambda ctx: self._reduce(upper)),
            PipelineTask(
                "BackwardLower", self._backward_lower, [gradients(lower)], reads=("middle", "middle_gradient")
            ),
            PipelineTask("AllReduceLower", lambda ctx: self._reduce(lower)),
            PipelineTask("OptimizerStep", self._step),
        ]

    def _forward(self, ctx: IterContext) -> None:
        ctx.middle = self._lower(ctx.inputs)
        ctx.middle_leaf = ctx.middle.detach().requires_grad_()
        ctx.loss = nn.functional.mse_loss(self._upper(ctx.middle_leaf), ctx.target)

    def _backward_upper(self, ctx: IterContext) -> None:
        self._backward(ctx)
        # A replayed Forward leaves no graph, so no gradients. With zeros, the other tasks take their usual time.
        gradient = ctx.middle_leaf.grad
        ctx.middle_gradient = torch.zeros_like(ctx.middle_leaf) if gradient is None else gradient

    def _backward_lower(self, ctx: IterContext) -> None:
        ctx.middle.backward(ctx.middle_gradient)

    def _reduce(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is None:  # see _backward_upper
                parameter.grad = torch.zeros_like(parameter)
            self._group.allreduce([parameter.grad]).wait()  # the sum
            parameter.grad.div_(self._group.size())


def _group(device: torch.device) -> Any:
    """Return the process group of the job, or of this process alone."""
    if distributed.is_initialized():
        return distributed.group.WORLD
    store = distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    if device.type == "cuda":
        return distributed.ProcessGroupNCCL(store, 0, 1, distributed.ProcessGroupNCCL.Options())
    return distributed.ProcessGroupGloo(store, 0, 1, timedelta(minutes=1))
