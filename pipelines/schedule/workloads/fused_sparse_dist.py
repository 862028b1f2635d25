"""FusedSparseDist, with 9 tasks. The lookup has its own task and stream, and Backward updates the tables itself."""

from __future__ import annotations

from typing import Any

import torch

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import gradients
from pipelines.schedule.workloads.recommender import Recommender, RecommenderSize


class _FusedLookup(torch.autograd.Function):
    """Lookup of rows of a table. Its backward is the optimizer: SGD on these rows, in place, without a stored gradient."""

    @staticmethod
    def forward(ctx: Any, hook: torch.Tensor, table: torch.Tensor, rows: torch.Tensor, lr: float) -> torch.Tensor:
        # save_for_backward would reject the table, because the previous iteration changes it before the backward.
        ctx.table, ctx.lr = table, lr
        ctx.save_for_backward(rows)
        return table[rows]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
        ctx.table.index_add_(0, ctx.saved_tensors[0], grad_outputs[0], alpha=-ctx.lr)
        return None, None, None, None


class FusedSparseDist(Recommender):
    """Workload with the tasks of TrainPipelineFusedSparseDist."""

    def __init__(self, size: RecommenderSize, device: Any, seed: int) -> None:
        super().__init__(size, device, seed)
        # The table requires no gradient, so this tensor makes autograd call the backward.
        self.hook = torch.zeros((), device=self.device, requires_grad=True)

    def tasks(self) -> list[PipelineTask]:
        return [
            *self._input_tasks(),
            PipelineTask("EmbLookup", self._lookup, reads=("rows", "bags"), writes=("pooled", "looked_up_on")),
            *self._dense_tasks(),
            PipelineTask("Forward", self._forward, reads=("features", "clicked", "pooled"), writes=("loss",)),
            PipelineTask(
                "Backward", self._backward, [gradients(self.model.parameters())], reads=("loss", "looked_up_on")
            ),
            PipelineTask("OptimizerStep", self._step),
        ]

    def _lookup(self, ctx: IterContext) -> None:
        ctx.looked_up_on = torch.cuda.current_stream() if self.device.type == "cuda" else None
        embeddings = _FusedLookup.apply(self.hook, self.table, ctx.rows, self.sparse_lr)
        ctx.pooled = self._pool_bags(embeddings, ctx.bags)

    def _forward(self, ctx: IterContext) -> None:
        ctx.loss = self._loss(ctx, ctx.pooled)

    def _backward(self, ctx: IterContext) -> None:
        ctx.loss.backward()
        if ctx.looked_up_on is not None:
            # Autograd ran the lookup's backward on the lookup's stream. The next lookup waits for this task, so this
            # task must not end before that backward has updated the table.
            torch.cuda.current_stream().wait_stream(ctx.looked_up_on)
        self.losses.append(ctx.loss.detach())
