"""One rank of test_ranks.py: python -m tests.schedule.rank_program RANK WORLD STORE KIND BATCHES -> one JSON line."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pipelines.schedule import (
    DataFlowPipeline,
    IterContext,
    PipelineError,
    PipelinePlan,
    PipelineTask,
    SWPipeline,
    TaskSchedule,
)


def plan(order: list[str]) -> PipelinePlan:
    """Two collectives on two streams and two threads, and a dense task that has none."""

    def collective(name: str, sign: int) -> PipelineTask:
        def fn(ctx: IterContext) -> None:
            value = torch.tensor([float(sign * (ctx.iter_idx + 1))])
            dist.all_reduce(value)
            order.append(f"{name}{ctx.iter_idx}")
            # A collective that met another one's partner has another sum.
            assert value.item() == sign * (ctx.iter_idx + 1) * dist.get_world_size(), (name, value.item())

        return PipelineTask(name, fn)

    dist_task, dense, reduce = (
        collective("dist", 1),
        PipelineTask("dense", lambda ctx: None),
        collective("reduce", -1000),
    )
    return PipelinePlan(
        schedule={
            dist_task: TaskSchedule(stage=0, stream="data_dist", thread_group="io", globally_ordered=True),
            dense: TaskSchedule(stage=1),
            reduce: TaskSchedule(stage=1, globally_ordered=True),
        },
        intra_iter_deps=[(dense, dist_task), (reduce, dense)],
    )


def data(kind: str, batches: int) -> Any:
    yield from range(batches)
    if kind == "broken data":
        raise OSError("disk")


def main(rank: int, world: int, store: str, kind: str, batches: int) -> dict[str, Any]:
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world, timeout=limit)
    found: dict[str, Any] = {}
    for name in ("SWPipeline", "DataFlowPipeline", "serial"):
        order: list[str] = []
        pipe = DataFlowPipeline(plan(order), 3, "cpu") if name == "DataFlowPipeline" else SWPipeline(plan(order), "cpu")
        error = None
        try:
            (pipe.run_serial if name == "serial" else pipe.run)(data(kind if rank == 1 else "", batches))
        except PipelineError as raised:
            error = str(raised)
        pipe.drain()
        found[name] = {"order": order, "leftover": pipe.leftover, "error": error}
        dist.barrier()
        if error:
            break  # the collectives in flight may have met on one rank only
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    rank, world, store, kind, batches = sys.argv[1:]
    print(json.dumps(main(int(rank), int(world), store, kind, int(batches))))
