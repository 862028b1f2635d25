"""One rank of test_ranks.py: python -m tests.schedule.rank_program RANK WORLD STORE -> one JSON object, kind → outcome."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
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

NAMES = ("SWPipeline", "DataFlowPipeline", "serial")


class Rank:
    """The plan's tasks on this rank: two collectives on two streams and two threads, and a dense task between them."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.order: list[str] = []
        self.sums: list[float] = []
        self.dense_fails_in: int | None = None

    def collective(self, name: str, sign: int) -> PipelineTask:
        def fn(ctx: IterContext) -> None:
            value = torch.tensor([float(sign * (ctx.iter_idx + 1))])
            dist.all_reduce(value)
            self.order.append(f"{name}{ctx.iter_idx}")
            self.sums.append(value.item() / sign)

        return PipelineTask(name, fn)

    def dense(self, ctx: IterContext) -> None:
        if ctx.iter_idx == self.dense_fails_in:
            raise ValueError("no such row")

    def plan(self) -> PipelinePlan:
        first, dense, reduce = (
            self.collective("dist", 1),
            PipelineTask("dense", self.dense),
            self.collective("reduce", -1),
        )
        return PipelinePlan(
            schedule={
                first: TaskSchedule(stage=0, stream="data_dist", thread_group="io", globally_ordered=True),
                dense: TaskSchedule(stage=1),
                reduce: TaskSchedule(stage=1, globally_ordered=True),
            },
            intra_iter_deps=[(dense, first), (reduce, dense)],
        )

    def engine(self, name: str) -> Any:
        return DataFlowPipeline(self.plan(), 3, "cpu") if name == "DataFlowPipeline" else SWPipeline(self.plan(), "cpu")

    def go(self, pipe: Any, name: str, data: Any) -> dict[str, Any]:
        """Run an engine once, drain it, and return the outcome and the leftover batches."""
        self.order, self.sums, error, retired = [], [], None, []
        try:
            (pipe.run_serial if name == "serial" else pipe.run)(
                data, on_retire=lambda ctx: retired.append(ctx.iter_idx)
            )
        except PipelineError as raised:
            error = str(raised)
        pipe.drain()
        leftover, pipe.leftover = pipe.leftover, []
        right = sorted(self.sums) == sorted(2.0 * (i + 1) for i in retired for _ in range(2))
        return {"order": self.order, "leftover": leftover, "error": error, "retired": retired, "right": right}


def data(batches: int, *, broken: bool) -> Iterator[int]:
    yield from range(batches)
    if broken:
        raise OSError("disk")


def ends_of_data(rank: Rank, *, broken: bool) -> dict[str, Any]:
    """Run each engine twice in one process group, where rank 1 has fewer batches.

    The second run has five good batches.
    """
    outcomes: dict[str, Any] = {}
    for name in NAMES:
        pipe = rank.engine(name)
        batches = data(4, broken=broken) if rank.rank else range(7)
        outcomes[name] = rank.go(pipe, name, batches)
        outcomes[f"{name} again"] = rank.go(pipe, name, range(5))
    return outcomes


def stopped_inside(rank: Rank, name: str, anew: Callable[[], None]) -> dict[str, Any]:
    """Let a task fail only on rank 1.

    Then try another run and another engine, and run again with new process groups.
    """
    pipe = rank.engine(name)
    pipe._agreement._timeout_s, pipe.join_timeout_s = 2.0, 0.5
    rank.dense_fails_in = 2 if rank.rank == 1 else None
    first = rank.go(pipe, name, range(8))
    rank.dense_fails_in, refused = None, []
    for again in (pipe.run, pipe.run_serial, lambda data: pipe.run_one_serial_iter(0), rank.engine(name).run):
        try:
            again(range(5))
        except PipelineError as raised:
            refused.append(str(raised))
    anew()
    return {"first": first, "refused": refused, "anew": rank.go(pipe, name, range(5))}


def out_of_step(rank: Rank, kind: str) -> dict[str, Any]:
    """Let rank 1 begin another run during the first, or replay tasks that the other rank runs."""
    # With order="stages", a drain on one rank waits for the other's next batch until it times out, as with the clock.
    pipe = DataFlowPipeline(rank.plan(), 3, "cpu", order="dependencies")
    if kind == "other shortcuts" and rank.rank == 1:
        pipe.enable_shortcut("dist")
    elif kind == "drains early" and rank.rank == 1:
        source = pipe.fill_pipeline(range(8))
        pipe.progress(source)
        pipe.drain()
    return {"first": rank.go(pipe, "DataFlowPipeline", range(8)), "second": rank.go(pipe, "DataFlowPipeline", [])}


def main(number: int, world: int, store: str) -> dict[str, Any]:
    groups = count()

    def join(seconds: float = 60) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        where, limit = f"file://{store}{next(groups)}", timedelta(seconds=seconds)
        dist.init_process_group("gloo", where, rank=number, world_size=world, timeout=limit)

    def own_threads() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith(("pipeline ", "cpu stream "))]

    outcomes: dict[str, Any] = {}
    for kind in ("fewer batches", "broken data"):
        join()
        outcomes[kind] = ends_of_data(Rank(number), broken=kind == "broken data")
    join()
    rank = Rank(number)  # ranks may have different numbers of iterations in flight
    outcomes["other depth"] = rank.go(DataFlowPipeline(rank.plan(), 3 + 2 * number, "cpu"), "", range(6))
    for kind in ("drains early", "other shortcuts"):
        join()
        outcomes[kind] = out_of_step(Rank(number), kind)
    outcomes["threads"] = own_threads()
    for name in NAMES[:2]:
        join(seconds=3)
        outcomes[f"stopped inside {name}"] = stopped_inside(Rank(number), name, join)
    return outcomes


if __name__ == "__main__":
    number, world, store = sys.argv[1:]
    print(json.dumps(main(int(number), int(world), store)), flush=True)
    os._exit(0)  # a thread that waits in a collective cannot be ended, and would block the end of the process group
