"""The CUDA device. Without a GPU, only the order of the torch calls is tested."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need torch")

import torch

from pipelines.schedule import (
    DataFlowPipeline,
    IterContext,
    PipelinePlan,
    PipelineTask,
    SWPipeline,
    TaskSchedule,
    validate_plan,
)
from pipelines.schedule.devices import Work, resolve_device
from pipelines.schedule.devices.tensors import StreamsOfTensors, memory_of, walk_tensors
from pipelines.schedule.engine.order import stall_costs
from pipelines.schedule.plan.plan_file import load_plan
from pipelines.schedule.workloads import build
from tests.schedule.plans import FUSED_INTER, FUSED_INTRA, FUSED_STAGES, Diary, fused_sparse_dist, plan_of

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize("device", [0, "cuda:0", "cuda"])
def test_without_cuda_the_default_device_is_refused_with_a_hint(device: Any) -> None:
    with pytest.raises(RuntimeError, match=r'device cuda(:0)? does not exist.*device="cpu"'):
        SWPipeline(fused_sparse_dist(), device)


class FakeStream:
    """The parts of torch.cuda.Stream that CudaDevice uses."""

    calls: list[tuple[Any, ...]]

    def __init__(self, device: Any = 0, name: str = "") -> None:
        self.device = SimpleNamespace(index=device)

    def wait_event(self, event: Any) -> None:
        self.calls.append(("wait_event", event))

    def wait_stream(self, stream: Any) -> None:
        self.calls.append(("wait_stream", self, stream))


class FakeEvent:
    calls: list[tuple[Any, ...]]

    def record(self, stream: Any) -> None:
        self.calls.append(("record", stream))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace torch.cuda with a fake that records its calls, and return the list of calls."""
    calls: list[tuple[Any, ...]] = []
    FakeStream.calls = FakeEvent.calls = calls
    default = FakeStream()

    @contextlib.contextmanager
    def current(stream: Any) -> Iterator[None]:
        calls.append(("enter", stream))
        yield
        calls.append(("leave", stream))

    fakes = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 1,
        "default_stream": lambda index: default,
        "current_stream": lambda index: default,
        "Stream": FakeStream,
        "Event": FakeEvent,
        "stream": current,
        "device": lambda index: contextlib.nullcontext(),
        "synchronize": lambda index: calls.append(("synchronize", index)),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: calls.append(("push", name)))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append(("pop",)))
    return calls


def test_swp_9_and_40_the_calls_torch_gets_are_the_documented_protocol(calls: list[tuple[Any, ...]]) -> None:
    side = FakeStream()
    tasks = [PipelineTask("a", lambda ctx: calls.append(("a",))), PipelineTask("b", lambda ctx: calls.append(("b",)))]
    plan = PipelinePlan({tasks[0]: TaskSchedule(stream=side), tasks[1]: TaskSchedule()}, [("b", "a")])
    pipe = SWPipeline(plan, device=0)
    default = pipe._streams["b"]
    slot = pipe._slots._ring[0]
    event = slot.events
    pipe.run(["batch"])
    submitted = [c for c in calls if c[0] != "synchronize"]
    assert submitted == [
        ("record", default),  # covers work that the caller launched before the run, for example on the weights
        ("wait_event", slot.callers_event),
        ("enter", side),
        ("a",),
        ("leave", side),
        ("record", side),
        ("wait_event", event["a"]),
        ("enter", default),
        ("b",),
        ("leave", default),
        ("record", default),
        ("wait_event", event["b"]),  # progress() makes the caller's stream wait for the iteration
    ]
    assert calls[-1] == ("synchronize", 0)


@pytest.mark.parametrize(
    ("batches", "waited_for"),
    [
        ("abc", [0]),  # once, for work that the caller launched before the run
        (["a", {"x": [torch.zeros(1)]}, "c", torch.zeros(1)], [0, 1, 3]),
    ],
)
@pytest.mark.parametrize("engine", [SWPipeline, DataFlowPipeline])
def test_tasks_wait_for_the_callers_work_on_the_batch(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, engine: Any, batches: Any, waited_for: list[int]
) -> None:
    """The data iterator may have launched that work. A batch without device memory is ready."""
    finder = "pipelines.schedule.devices.cuda.cuda_tensors"
    monkeypatch.setattr(finder, lambda values, **_: (t for _, t in walk_tensors(values)))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    side, callers = FakeStream(), torch.cuda.current_stream(0)
    tasks = {name: PipelineTask(name, lambda ctx: None) for name in ("copy", "here", "use")}
    places = {"copy": TaskSchedule(stream=side), "here": TaskSchedule(), "use": TaskSchedule(stream="third")}
    plan = PipelinePlan({tasks[name]: place for name, place in places.items()}, [("use", "copy"), ("use", "here")])
    pipe = engine(plan, device=0, **({"max_depth": 1} if engine is DataFlowPipeline else {}))
    events = [slot.callers_event for slot in pipe._slots._ring]

    def data() -> Iterator[Any]:
        for i, batch in enumerate(batches):
            calls.append(("batch", i))
            yield batch

    pipe.run(data())
    waits = [place for place, call in enumerate(calls) if call[0] == "wait_event" and call[1] in events]
    for place in waits:  # `here` runs on the caller's stream, and `use` waits for `copy`
        assert calls[place - 1] == ("record", callers) and calls[place + 1] == ("enter", side)
    assert [calls[place - 2] for place in waits] == [("batch", i) for i in waited_for]


@pytest.mark.parametrize("is_on_side", [True, False])
@pytest.mark.parametrize(
    "run", [lambda pipe, data: pipe.run_serial(data), lambda pipe, data: pipe.run_one_serial_iter(*data)]
)
def test_serial_tasks_wait_for_the_callers_work_and_the_caller_for_theirs(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, is_on_side: bool, run: Any
) -> None:
    """torch's other streams do not wait for the default stream automatically."""
    default, side = torch.cuda.default_stream(0), FakeStream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: side if is_on_side else default)
    run(SWPipeline(plan_of({"a": 0}, []), device=0), ["batch"])
    submitted = [call for call in calls if call[0] != "synchronize"]
    task = [("enter", default), ("leave", default)]
    waits = [("wait_stream", default, side), ("wait_stream", side, default)]
    assert submitted == ([waits[0], *task, waits[1]] if is_on_side else task)


@pytest.mark.parametrize(("engine", "depth"), [(SWPipeline, 2), (DataFlowPipeline, 1), (DataFlowPipeline, 3)])
@pytest.mark.parametrize("is_read", [True, False])
def test_only_a_loop_that_reads_every_step_bounds_the_iterations_on_the_device(
    calls: list[tuple[Any, ...]], engine: Any, depth: int, is_read: bool
) -> None:
    """Such a loop takes the next batch when all but the last `depth` iterations are done.

    Other loops run ahead of the device.
    """
    n_done, on_device = 0, []

    def data() -> Iterator[int]:
        for i in range(12):
            on_device.append(i + 1 - n_done)
            yield i

    def read(ctx: IterContext) -> None:
        nonlocal n_done
        n_done = ctx.iter_idx + 1 if is_read else 0

    options: dict[str, Any] = {"max_depth": depth} if engine is DataFlowPipeline else {}
    plan = plan_of({"copy": 0, "train": 1}, [("train", "copy")], stream={"copy": "side"})
    engine(plan, device=0, **options).run(data(), on_retire=read)
    assert max(on_device) == (depth + 1 if is_read else 12)


def pushed(calls: list[tuple[Any, ...]]) -> list[str]:
    return [call[1] for call in calls if call[0] == "push"]


def test_ranges_cost_a_launch_each_so_there_are_none_without_a_reader(calls: list[tuple[Any, ...]]) -> None:
    SWPipeline(plan_of({"a": 0}, []), device=0).run(range(2))
    assert pushed(calls) == []


@pytest.mark.parametrize("variable", ["NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID"])
def test_swp_40_a_tracer_of_the_process_gets_ranges(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "x")
    SWPipeline(plan_of({"a": 0}, []), device=0).run(range(2))
    assert pushed(calls) == ["SWP/a/iter0", "SWP/a/iter1"]
    assert [call[0] for call in calls].count("pop") == 2


@pytest.mark.parametrize("name", ["lookup{0}", "{x}", "{{y}}"])
def test_a_range_has_the_name_of_its_task_as_it_is(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """torch formats the name of a range like str.format, so braces must be escaped."""
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "x")
    SWPipeline(plan_of({name: 0}, []), device=0).run(range(1))
    assert pushed(calls) == [f"SWP/{name}/iter0"]


@pytest.mark.parametrize("groups", [{}, {"a": "io"}])
@pytest.mark.parametrize("is_asked", [True, False])
def test_swp_40_every_thread_that_submits_emits_ranges_if_asked(
    calls: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    groups: dict[str, str],
    is_asked: bool,
) -> None:
    emitting: list[str] = []

    @contextlib.contextmanager
    def emit() -> Iterator[None]:
        name = threading.current_thread().name
        emitting.append(name)
        yield
        emitting.remove(name)

    during: list[list[str]] = []
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", emit)
    note = {"b": lambda ctx: during.append(sorted(emitting))}
    pipe = SWPipeline(plan_of({"a": 0, "b": 0}, [("b", "a")], before=note, thread_group=groups), device=0)
    pipe.run(range(2), emit_nvtx=is_asked)
    threads = ["pipeline default", "pipeline io"] if groups else [threading.current_thread().name]
    assert during == [threads if is_asked else []] * 2 and emitting == []


def test_swp_40_a_profiler_gets_ranges(calls: list[tuple[Any, ...]]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        SWPipeline(plan_of({"a": 0}, []), device=0).run(range(2))
    assert pushed(calls) == ["SWP/a/iter0", "SWP/a/iter1"]


def test_swp_41_serial_ranges_have_their_own_prefix_and_skip_mark(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "x")
    pipe = SWPipeline(plan_of({"a": 0}, []), device="cuda:0")
    pipe.enable_shortcut("a")
    pipe.run_serial(range(2))
    assert pushed(calls) == ["SWP_serial/a/iter0", "SWP_serial/a/iter1 [skip]"]
    assert repr(pipe).startswith("SWPipeline(device=0, depth=1, tasks=['a'], shortcuts=['a'])")


def test_streams_by_name_by_object_and_of_the_wrong_device(calls: list[tuple[Any, ...]]) -> None:
    device = resolve_device(0)
    mine = FakeStream()
    assert device.stream(mine) is mine
    assert device.stream("x") is device.stream("x") is not device.stream("y")
    assert device.stream(None) is device.stream("default")
    assert device.stream_name(device.stream("x")) == "x"
    assert device.stream_name(mine) is None
    with pytest.raises(TypeError, match="runs on cuda:0"):
        device.stream(FakeStream(3))
    with pytest.raises(TypeError, match="a name"):
        device.stream(7)


def test_a_device_without_a_number_is_torchs_current_one(calls: list[tuple[Any, ...]]) -> None:
    """torch does the same everywhere. A rank that called set_device must not run on GPU 0."""
    assert [resolve_device(d).name for d in ("cuda", torch.device("cuda"), 0, "cuda:1")] == ["1", "1", "0", "1"]
    with pytest.raises(RuntimeError, match="cuda:2 does not exist: torch sees 2"):
        resolve_device(2)


def test_the_default_stream_as_an_object_is_no_stream_of_its_own(calls: list[tuple[Any, ...]]) -> None:
    default, side = SimpleNamespace(cuda_stream=0), SimpleNamespace(cuda_stream=94)
    checked = validate_plan(plan_of({"a": 0, "b": 0}, [("b", "a")], stream={"a": default}))
    assert stall_costs(checked) == {"a": 0, "b": 0}
    assert stall_costs(validate_plan(plan_of({"a": 0, "b": 0}, [("b", "a")], stream={"a": side})))["b"] == 1


def test_every_tensor_of_the_context_is_kept_alive_for_the_stream(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr(
        "pipelines.schedule.devices.cuda.cuda_tensors", lambda values, **_: (t for _, t in walk_tensors(values))
    )
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: kept.append((self.item(), stream)))
    side = FakeStream()

    def make(ctx: IterContext) -> None:
        ctx.made = {"deep": [torch.tensor(5)]}

    plan = PipelinePlan(
        {PipelineTask("make", make): TaskSchedule(), PipelineTask("use", lambda ctx: None): TaskSchedule(stream=side)},
        [("use", "make")],
    )
    pipe = SWPipeline(plan, device=0)
    pipe.run([torch.tensor(3)])
    assert kept[0] == (3, pipe._streams["make"])
    assert sorted(kept[1:], key=lambda k: k[0]) == [(3, side), (5, side)]
    assert pipe.device._kept._by_id == {}, "a tensor that is gone must not be remembered: another may get its id"


@pytest.fixture
def kept(calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Values of the tensors that torch is told to keep, each with the stream that it keeps them for."""
    kept: list[tuple[str, Any]] = []
    finder = "pipelines.schedule.devices.cuda.cuda_tensors"
    monkeypatch.setattr(finder, lambda values, gradients=True: cpu_tensors(values, gradients))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: kept.append((str(self.tolist()), stream)))
    return kept


def cpu_tensors(values: dict[str, Any], gradients: bool) -> Iterator[torch.Tensor]:
    """Tensors in the memory of the CPU, as `cuda_tensors` finds them in that of CUDA."""
    for _, tensor in walk_tensors(values):
        yield tensor
        if gradients and tensor.is_leaf and tensor.grad is not None:
            yield tensor.grad


DECLARED: dict[str, dict[str, Any]] = {
    "all": {"make": {"writes": ("x", "y")}, "use": {"reads": ("x",)}, "look": {"reads": ("y",)}},
    "none": {},
    "writer": {"make": {"writes": ("x", "y")}},
    "readers": {"use": {"reads": ("x",)}, "look": {"reads": ("y",)}},
}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("all", {("1", "use"), ("2", "look")}),
        ("none", {("1", "make"), ("2", "make"), ("1", "use"), ("2", "use"), ("1", "look"), ("2", "look")}),
        ("writer", {("1", "use"), ("2", "use"), ("1", "look"), ("2", "look")}),
        ("readers", {("1", "make"), ("2", "make"), ("1", "use"), ("2", "look")}),
    ],
)
@pytest.mark.parametrize("engine", [SWPipeline, DataFlowPipeline])
def test_memory_is_kept_for_the_streams_that_use_it_and_did_not_make_it(
    kept: list[tuple[str, Any]], engine: Any, declared: str, expected: set[tuple[str, str]]
) -> None:
    """`end` declares nothing and is on the stream of `make`."""

    def make(ctx: IterContext) -> None:
        ctx.x, ctx.y = torch.tensor(1), torch.tensor(2)

    functions = {"make": make, **dict.fromkeys(("use", "look", "end"), lambda ctx: None)}
    tasks = {name: PipelineTask(name, fn, **DECLARED[declared].get(name, {})) for name, fn in functions.items()}
    places = {task: TaskSchedule(stream="make" if name == "end" else name) for name, task in tasks.items()}
    plan = PipelinePlan(places, [("use", "make"), ("look", "use"), ("end", "look")])
    pipe = engine(plan, device=0, **({"max_depth": 1} if engine is DataFlowPipeline else {}))
    pipe.run(range(3))
    names = {stream: name for name, stream in pipe._streams.items() if name != "end"}
    assert sorted((value, names[stream]) for value, stream in kept) == sorted([*expected] * 3)


def test_a_batch_is_kept_for_every_task_since_none_declares_it(kept: list[tuple[str, Any]]) -> None:
    copy = PipelineTask("copy", lambda ctx: None, writes=("x",))
    pipe = SWPipeline(PipelinePlan({copy: TaskSchedule(stream="side")}, []), device=0)
    pipe.run([torch.tensor(7)])
    assert kept == [("7", pipe._streams["copy"])]


def test_a_gradient_is_kept_for_the_stream_of_its_backward_which_may_not_have_allocated_it(
    kept: list[tuple[str, Any]],
) -> None:
    def backward(ctx: IterContext) -> None:
        ctx.x = torch.tensor(3.0, requires_grad=True)
        (5 * ctx.x).backward()

    tasks = [PipelineTask("backward", backward, writes=("x",)), PipelineTask("use", lambda ctx: None)]
    pipe = SWPipeline(PipelinePlan({task: TaskSchedule() for task in tasks}, [("use", "backward")]), device=0)
    pipe.run(range(1))
    assert kept == [("5.0", pipe._streams["use"])]


@pytest.mark.parametrize(
    ("name", "calls_of_iteration"),
    [
        ("fused_sparse_dist", 11),  # 22 if no task declared its attributes
        ("sparse_dist", 8),  # 15 if no task declared its attributes
        ("mlp", 2),  # 3 if no task declared its attributes
        ("augmented", 6),  # 8 if no task declared its attributes
        ("data_parallel_mlp", 8),  # 12 if no task declared its attributes
    ],
)
def test_calls_to_keep_memory_for_an_iteration_of_a_workload(
    kept: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str, calls_of_iteration: int
) -> None:
    """The batch is in host memory. A call costs as much as a launch."""
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: kept.append(("", stream)))
    finder = "pipelines.schedule.devices.cuda.cuda_tensors"
    monkeypatch.setattr(
        finder,
        lambda values, gradients=True: cpu_tensors({n: v for n, v in values.items() if n != "batch"}, gradients),
    )
    file = load_plan(name)
    work = build(file.workload, "tiny")
    pipe = SWPipeline(file.plan({task.name: task for task in work.tasks()}), device=0)
    pipe.run(work.batches(3))
    assert len(kept) == 3 * calls_of_iteration


def test_a_tensors_memory_is_kept_once_for_each_stream() -> None:
    kept, x, y = StreamsOfTensors(), torch.zeros(3), torch.zeros(3)
    assert [kept.add(x, "a"), kept.add(x, "b"), kept.add(y, "a")] == [True] * 3
    assert [kept.add(x, "a"), kept.add(x, "b"), kept.add(y, "a")] == [False] * 3
    x.set_(torch.zeros(9))  # type: ignore[call-overload]
    assert [kept.add(x, "a"), kept.add(x, "a"), kept.add(y, "a")] == [True, False, False]


def test_a_tensor_with_the_id_of_one_that_is_gone_is_another() -> None:
    kept, x, y = StreamsOfTensors(), torch.zeros(3), torch.zeros(3)
    kept.add(x, "a")
    kept._by_id[id(y)] = kept._by_id[id(x)]
    assert kept.add(y, "a")
    del x
    assert not kept.add(y, "a"), "the end of the tensor before must not remove its successor's entry"


def test_tensors_are_found_in_containers_and_objects_but_not_in_models() -> None:
    x = torch.zeros(1)
    holder = SimpleNamespace(inner=(x, [torch.ones(1)]), model=torch.nn.Linear(1, 1))
    holder.itself = holder
    tensors = dict(walk_tensors({"h": holder, "n": 3, "d": {"k": x}}))
    assert set(tensors) == {("h", "inner", 0), ("h", "inner", 1, 0), ("d", "k")}


@dataclass(slots=True)
class Slotted:
    """A batch without `__dict__`."""

    x: torch.Tensor


def test_tensors_in_slots_sets_and_queues_are_found_too() -> None:
    x, y, z = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    tensors = dict(walk_tensors({"batch": Slotted(x), "set": {y}, "queue": deque([z])}))
    assert tensors == {("batch", "x"): x, ("set", 0): y, ("queue", 0): z}


@pytest.mark.parametrize(
    "layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
)
@pytest.mark.filterwarnings("ignore:Sparse.*beta state")
def test_a_sparse_tensor_is_kept_by_what_holds_its_memory(layout: Any) -> None:
    """record_stream accepts only strided tensors."""
    sparse = torch.eye(4).to_sparse(layout=layout, blocksize=(2, 2) if "bs" in str(layout) else None)
    parts = memory_of(sparse)
    assert all(part.layout is torch.strided for part in parts)
    assert parts[-1].data_ptr() == (sparse._values() if layout is torch.sparse_coo else sparse.values()).data_ptr()
    assert len(parts) == (2 if layout is torch.sparse_coo else 3)
    dense = torch.eye(2)
    assert memory_of(dense) == [dense]


def test_profiler_traces_carry_the_tasks_names() -> None:
    """SWP-40: torch's profiler records the ranges of the calling thread (serial), or of all threads with an option."""
    pipe = SWPipeline(plan_of({"a": 0}, []), "cpu")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        pipe.run_serial(range(2))
    assert {e.name for e in prof.events()} >= {"SWP_serial/a/iter0", "SWP_serial/a/iter1"}
    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], experimental_config=everywhere
    ) as prof:
        pipe.run(range(2))
    assert {e.name for e in prof.events()} >= {"SWP/a/iter0", "SWP/a/iter1"}


def test_work_labels() -> None:
    assert Work("Forward", 3).label == "SWP/Forward/iter3"
    assert Work("Forward", 3, skipped=True, prefix="SWP_serial").label == "SWP_serial/Forward/iter3 [skip]"


@on_gpu
@pytest.mark.parametrize(
    "engine", [lambda p: SWPipeline(p, 0), lambda p: DataFlowPipeline(p, 4, 0)], ids=["clocked", "flow"]
)
def test_on_a_gpu_both_engines_run_the_fused_plan(engine: Any) -> None:
    diary = Diary()
    pipe = engine(fused_sparse_dist(diary))
    pipe.run(range(10), emit_nvtx=True)
    diary.check(FUSED_STAGES, 10, FUSED_INTRA, FUSED_INTER)


@on_gpu
def test_on_a_gpu_values_cross_streams_in_order() -> None:
    """One stream fills a tensor slowly and another reads it. Without the wait, the reader would see zeros."""
    sums: list[torch.Tensor] = []

    def fill(ctx: IterContext) -> None:
        ctx.x = torch.zeros(1 << 20, device="cuda")
        torch.cuda._sleep(20_000_000)
        ctx.x += ctx.iter_idx + 1

    def read(ctx: IterContext) -> None:
        sums.append(ctx.x.mean())

    f, r = PipelineTask("fill", fill), PipelineTask("read", read)
    plan = PipelinePlan({f: TaskSchedule(stream="copy", thread_group="io"), r: TaskSchedule(stage=1)}, [(r, f)])
    SWPipeline(plan, 0).run(range(8))
    assert [s.item() for s in sums] == [float(i + 1) for i in range(8)]


@on_gpu
def test_on_a_gpu_a_batch_is_ready_before_a_task_of_another_stream_reads_it() -> None:
    """The data iterator fills the batch slowly on the caller's stream."""
    sums: list[torch.Tensor] = []

    def data() -> Iterator[torch.Tensor]:
        for i in range(8):
            x = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(20_000_000)
            x += i + 1
            yield x

    read = PipelineTask("read", lambda ctx: sums.append(ctx.batch.mean()))
    SWPipeline(PipelinePlan({read: TaskSchedule(stream="side")}, []), 0).run(data())
    assert [s.item() for s in sums] == [float(i + 1) for i in range(8)]


def overwritten(keep_alive: bool) -> bool:
    """Return whether memory that one stream frees is reused while another stream has yet to read it."""
    wrong = []

    def make(ctx: IterContext) -> None:
        ctx.x = torch.ones(1 << 20, device="cuda")

    def read_late(ctx: IterContext) -> None:
        torch.cuda._sleep(200_000_000)
        wrong.append((ctx.x != 1).any())
        del ctx.x

    def reuse(ctx: IterContext) -> None:
        ctx.y = torch.full((1 << 20,), 7.0, device="cuda")

    tasks = [PipelineTask(fn.__name__, fn) for fn in (make, read_late, reuse)]
    schedule = dict(
        zip(tasks, (TaskSchedule(stream="a"), TaskSchedule(stream="b"), TaskSchedule(stream="a")), strict=True)
    )
    # reuse waits for nothing on the device, because no event of read_late delays stream a.
    pipe = SWPipeline(PipelinePlan(schedule, [("read_late", "make")]), 0, order="stage_descending")
    if not keep_alive:
        pipe.device.keep_alive = lambda values, stream: None  # type: ignore[method-assign]
    torch.cuda.empty_cache()
    pipe.run(range(4))
    return any(bool(w) for w in wrong)


@on_gpu
@pytest.mark.filterwarnings("ignore::pipelines.schedule.PlanWarning")
def test_on_a_gpu_tensors_that_cross_streams_are_kept_alive() -> None:
    assert not overwritten(keep_alive=True)
    assert overwritten(keep_alive=False), "the case no longer shows what keep_alive is for"
