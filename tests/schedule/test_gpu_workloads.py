"""The code of workloads that runs only on a GPU: the fitting size and the captured step. A fake replaces torch.cuda."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the workloads need torch")

from pipelines.schedule.plan.plan import PipelineTask  # noqa: E402
from pipelines.schedule.workloads import WORKLOADS, build, data_parallel_mlp  # noqa: E402
from pipelines.schedule.workloads.fitting import SHARE, fitting_shape  # noqa: E402
from pipelines.schedule.workloads.graphed_mlp import GraphedMlp  # noqa: E402


class FakeMemory:
    """A GPU of 1000 bytes. An iteration leaves `stays` bytes per sample and needs `works` more while it runs."""

    def __init__(self, stays: float, works: float) -> None:
        self.stays, self.works = stays, works
        self.allocated = self.peak = 0.0
        self.built: list[int] = []

    def workload(self, shape: Shape) -> Any:
        self.built.append(shape.batch)
        tasks = [PipelineTask("step", lambda ctx: self.step(shape.batch))]
        return SimpleNamespace(tasks=lambda: tasks, batches=lambda n: [None] * n)

    def step(self, batch: int) -> None:
        if batch * (self.stays + self.works) > 1000:
            raise torch.cuda.OutOfMemoryError
        self.allocated = batch * self.stays
        self.peak = max(self.peak, batch * (self.stays + self.works))

    def reset(self, device: Any) -> None:
        self.peak = self.allocated


@dataclass(frozen=True)
class Shape:
    batch: int

    def halved(self) -> Shape:
        return replace(self, batch=self.batch // 2)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> FakeMemory:
    memory = FakeMemory(stays=1, works=1)
    fakes = {
        "get_device_properties": lambda device: SimpleNamespace(total_memory=1000),
        "synchronize": lambda device: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda device: memory.allocated,
        "max_memory_allocated": lambda device: memory.peak,
        "reset_peak_memory_stats": memory.reset,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # slow in a process that has run other tests
    return memory


@pytest.mark.parametrize(
    ("stays", "works", "batch"),
    [
        (0.0, 1.5625, 64),  # 5 iterations in flight just fit, with 500 of 1000 bytes
        (0.0, 1.5626, 32),
        (7.8125, 0.0, 64),  # memory that stays counts once
        (7.8126, 0.0, 32),
        (0.0, 1000.0, 0),  # not even one sample
    ],
)
def test_the_largest_shape_whose_iterations_in_flight_fit_into_half_the_memory(
    memory: FakeMemory, stays: float, works: float, batch: int
) -> None:
    memory.stays, memory.works = stays, works
    assert SHARE == 0.5
    if batch:
        assert fitting_shape(memory.workload, Shape(64), "cuda:0") == Shape(batch)
    else:
        with pytest.raises(RuntimeError, match="does not fit into half the memory of cuda:0; use --size small"):
            fitting_shape(memory.workload, Shape(64), "cuda:0")


def test_a_shape_that_exhausts_the_memory_is_halved(memory: FakeMemory) -> None:
    memory.works = 20
    assert fitting_shape(memory.workload, Shape(64), "cuda:0") == Shape(4)
    assert memory.built == [64, 32, 16, 8, 4]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_large_shape_can_be_halved(name: str) -> None:
    sizes = type(build(name, "tiny")).sizes
    half = sizes["large"].halved()
    assert half.batch == sizes["large"].batch // 2


def test_a_captured_step_trains_from_the_first_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up and capture run the step, so their effect must be undone."""
    steps: list[str] = []

    class Graph:
        def replay(self) -> None:
            steps.append("replay")
            captured._train()

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes = {
        "Stream": lambda device: stream,
        "current_stream": lambda device: stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "CUDAGraph": Graph,
        "graph": lambda graph: contextlib.nullcontext(),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    captured, plain = (build("graphed_mlp", "tiny") for _ in range(2))
    assert isinstance(captured, GraphedMlp) and isinstance(plain, GraphedMlp)
    before = {name: weight.clone() for name, weight in captured.weights().items()}
    captured._replay = captured._captured()
    assert all(torch.equal(weight, before[name]) for name, weight in captured.weights().items())
    for work in (captured, plain):
        for batch in work.batches(5):
            ctx = SimpleNamespace(batch=batch)
            for task in work.tasks():
                task.fn(ctx)
    assert steps == ["replay"] * 5
    assert torch.equal(torch.stack(captured.losses), torch.stack(plain.losses))


def test_the_gradients_are_reduced_by_nccl_on_a_gpu_and_by_the_jobs_group_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[Any, ...]] = []

    class Nccl:
        Options = dict

        def __init__(self, *arguments: Any) -> None:
            made.append(arguments)

    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", Nccl, raising=False)
    assert isinstance(data_parallel_mlp._group(torch.device("cuda:0")), Nccl)
    assert [arguments[1:3] for arguments in made] == [(0, 1)]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "group", SimpleNamespace(WORLD="the job's"))
    assert data_parallel_mlp._group(torch.device("cuda:0")) == "the job's"


def test_gradients_are_means_over_the_ranks() -> None:
    work = build("data_parallel_mlp", "tiny")
    assert isinstance(work, data_parallel_mlp.DataParallelMlp)
    work._group = SimpleNamespace(
        allreduce=lambda tensors: SimpleNamespace(wait=lambda: tensors[0].mul_(3)), size=lambda: 2
    )
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), 4.0)
    work._reduce([parameter])
    assert parameter.grad.tolist() == [6.0, 6.0]
