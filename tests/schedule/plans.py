"""Plans of the document and a diary of executed tasks, for the engines' tests. No torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pipelines.schedule import IterContext, PipelinePlan, PipelineTask, TaskSchedule

SPARSE_DIST = [
    "H2D",
    "InputDistStart",
    "InputDistWait",
    "ZeroGrad",
    "WaitBatch",
    "Forward",
    "Backward",
    "OptimizerStep",
]


class Diary:
    """The begin and end of each task in each iteration, as positions in one common count."""

    def __init__(self) -> None:
        self.began: dict[tuple[str, int], int] = {}
        self.ended: dict[tuple[str, int], int] = {}
        self.order: list[tuple[str, int]] = []
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._count = 0

    def task(self, name: str, before: Callable[[IterContext], None] | None = None) -> PipelineTask:
        """Return a task that records its runs, and sets an attribute of the context."""

        def fn(ctx: IterContext) -> None:
            self._note(self.began, name, ctx)
            self.order.append((name, ctx.iter_idx))
            if before is not None:
                before(ctx)
            setattr(ctx, f"did_{name}", (name, ctx.iter_idx, ctx.batch))
            self._note(self.ended, name, ctx)

        return PipelineTask(name, fn)

    def _note(self, where: dict[tuple[str, int], int], name: str, ctx: IterContext) -> None:
        with self._lock:
            if (name, ctx.iter_idx) in where:
                self.wrong.append(f"{name} ran twice for iteration {ctx.iter_idx}")
            where[name, ctx.iter_idx] = self._count
            self._count += 1

    def iterations(self, name: str) -> list[int]:
        """Return the iterations for which the task ran, in that order."""
        return [i for n, i in self.order if n == name]

    def check(self, names: Iterable[str], n: int, intra: Any, inter: Any) -> None:
        """Assert that every task ran once for each of n iterations, and that all dependencies were kept."""
        assert not self.wrong
        assert set(self.ended) == {(name, i) for name in names for i in range(n)}
        for task, dep in intra:
            for i in range(n):
                assert self.ended[dep, i] < self.began[task, i], (task, dep, i)
        for task, dep in inter:
            for i in range(1, n):
                assert self.ended[dep, i - 1] < self.began[task, i], (task, dep, i)


def plan_of(
    stages: dict[str, int],
    intra: list[tuple[str, str]],
    inter: list[tuple[str, str]] | None = None,
    *,
    diary: Diary | None = None,
    before: dict[str, Callable[[IterContext], None]] | None = None,
    **settings: dict[str, Any],
) -> PipelinePlan:
    """Return a plan from names. `settings` are keywords of TaskSchedule by task, for example stream={"copy": "io"}."""
    diary = diary or Diary()
    schedule = {}
    for name, stage in stages.items():
        own = {key: values[name] for key, values in settings.items() if name in values}
        schedule[diary.task(name, (before or {}).get(name))] = TaskSchedule(stage=stage, **own)
    return PipelinePlan(schedule=schedule, intra_iter_deps=list(intra), inter_iter_deps=list(inter or []))


def sparse_dist(diary: Diary | None = None) -> PipelinePlan:
    """Return TrainPipelineSparseDist, SWP-29: 8 tasks, 3 stages, 3 streams."""
    streams = {"H2D": "memcpy", "InputDistStart": "data_dist", "InputDistWait": "data_dist"}
    stages = {name: {"H2D": 0, "InputDistStart": 1, "InputDistWait": 1}.get(name, 2) for name in SPARSE_DIST}
    intra = [
        ("InputDistStart", "H2D"),
        ("InputDistWait", "InputDistStart"),
        ("WaitBatch", "InputDistWait"),
        ("WaitBatch", "ZeroGrad"),
        ("Forward", "InputDistWait"),
        ("Forward", "WaitBatch"),
        ("Backward", "Forward"),
        ("OptimizerStep", "Backward"),
    ]
    return plan_of(stages, intra, diary=diary, stream=streams)


FUSED_STAGES = {
    "H2D": 0,
    "InputDistStart": 1,
    "InputDistWait": 1,
    "EmbLookup": 2,
    "ZeroGrad": 2,
    "WaitBatch": 2,
    "Forward": 2,
    "Backward": 2,
    "OptimizerStep": 2,
}
FUSED_INTRA = [
    ("InputDistStart", "H2D"),
    ("InputDistWait", "InputDistStart"),
    ("EmbLookup", "InputDistWait"),
    ("Forward", "EmbLookup"),
    ("WaitBatch", "ZeroGrad"),
    ("Forward", "WaitBatch"),
    ("Backward", "Forward"),
    ("OptimizerStep", "Backward"),
]
FUSED_INTER = [("EmbLookup", "Backward")]


def fused_sparse_dist(diary: Diary | None = None, **settings: Any) -> PipelinePlan:
    """Return TrainPipelineFusedSparseDist, SWP-69: 9 tasks, 3 stages, 4 streams."""
    streams = {
        "H2D": "memcpy",
        "InputDistStart": "data_dist",
        "InputDistWait": "data_dist",
        "EmbLookup": "emb_lookup",
    }
    settings.setdefault("globally_ordered", {"InputDistStart": True})
    return plan_of(FUSED_STAGES, FUSED_INTRA, FUSED_INTER, diary=diary, stream=streams, **settings)


def own_threads() -> list[str]:
    """Return the names of running threads of engines and cpu streams."""
    return [t.name for t in threading.enumerate() if t.name.startswith(("pipeline ", "cpu stream "))]


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return whether the condition becomes true in time. The time limit only ends a test that has failed."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
