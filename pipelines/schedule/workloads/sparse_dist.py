"""SparseDist, with 8 tasks. Forward looks up the tables, and OptimizerStep updates them with sparse gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import gradients
from pipelines.schedule.workloads.recommender import Recommender, RecommenderSize


class SparseDist(Recommender):
    """Workload with the tasks of TrainPipelineSparseDist."""

    def __init__(self, size: RecommenderSize, device: Any, seed: int) -> None:
        super().__init__(size, device, seed)
        self.table.requires_grad_()
        self.optimizers.append(torch.optim.SGD([self.table], lr=self.sparse_lr))

    def tasks(self) -> list[PipelineTask]:
        return [
            *self._input_tasks(),
            *self._dense_tasks(),
            PipelineTask("Forward", self._forward, reads=("features", "clicked", "rows", "bags"), writes=("loss",)),
            PipelineTask(
                "Backward", self._backward, [gradients([*self.model.parameters(), self.table])], reads=("loss",)
            ),
            PipelineTask("OptimizerStep", self._step),
        ]

    def _forward(self, ctx: IterContext) -> None:
        embeddings = nn.functional.embedding(ctx.rows, self.table, sparse=True)
        ctx.loss = self._loss(ctx, self._pool_bags(embeddings, ctx.bags))

    def _backward(self, ctx: IterContext) -> None:
        ctx.loss.backward()
        self.losses.append(ctx.loss.detach())
