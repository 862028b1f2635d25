"""Shortcuts and their gradients: SWP-2, SWP-43, SWP-44, SWP-62 to SWP-66, SWP-68."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="shortcuts hold tensors")

import torch

from pipelines.schedule import (
    DataFlowPipeline,
    DeclaredIO,
    IterContext,
    PipelineError,
    PipelinePlan,
    PipelineTask,
    SWPipeline,
    TaskSchedule,
)
from pipelines.schedule.engine.shortcut import (
    _CACHE_TAG,
    Shortcuts,
    _cache_val,
    _GraftGrad,
    _restore_val,
    _WatchedContext,
)

Pair = namedtuple("Pair", "left right")


def test_swp_64_65_values_come_back_with_fresh_leaves_that_share_memory_with_the_cache() -> None:
    x = torch.ones(2, requires_grad=True)
    value = {"t": x * 2, "l": [torch.zeros(1), 5], "u": (x, "s"), "p": Pair(x, None), "o": SimpleNamespace(v=x, n=3)}
    value["d"] = OrderedDict(z=torch.ones(1), a=1)
    cached = _cache_val(value)
    first, second = _restore_val(cached), _restore_val(cached)
    assert isinstance(first["o"], SimpleNamespace)
    assert isinstance(first["p"], Pair)
    assert isinstance(first["d"], OrderedDict) and list(first["d"]) == ["z", "a"]
    assert (first["l"][1], first["u"][1], first["o"].n) == (5, "s", 3)
    for restored in (first, second):
        assert restored["t"].is_leaf
        assert restored["t"].requires_grad
        assert not restored["l"][0].requires_grad
        assert torch.equal(restored["o"].v, x)
    assert first["t"] is not second["t"]
    assert first["t"].data_ptr() == second["t"].data_ptr()
    assert first["t"].data_ptr() != value["t"].data_ptr()


def test_swp_64_tags() -> None:
    x = torch.ones(1, requires_grad=True)
    assert _cache_val(x)[:2] == (_CACHE_TAG, "t")
    assert _cache_val(x)[3] is True
    assert [_cache_val(v)[1] for v in ({"a": x}, [x], (x,), SimpleNamespace(a=x))] == ["d", "l", "u", "o"]
    module = torch.nn.Linear(1, 1)
    assert _cache_val(module) is module  # a model is not a value of an iteration
    assert _cache_val("text") == "text"


@dataclass(slots=True, frozen=True)
class Slotted:
    """A value without `__dict__`."""

    values: torch.Tensor
    count: int


def test_swp_64_objects_with_slots_are_copied_and_replayed() -> None:
    x = torch.ones(2, requires_grad=True)
    value = Slotted(x * 3, 5)
    cached = _cache_val(value)
    first, second = _restore_val(cached), _restore_val(cached)
    assert isinstance(first, Slotted) and first.count == 5
    assert first.values is not second.values and first.values.is_leaf and first.values.requires_grad
    assert torch.equal(first.values, value.values)

    def make(ctx: IterContext) -> None:
        ctx.made = Slotted(x * ctx.seed, 5)

    def backward(ctx: IterContext) -> None:
        ctx.made.values.sum().backward()

    def seed(ctx: IterContext) -> None:
        ctx.seed = torch.ones(2, requires_grad=True)

    tasks = [PipelineTask(fn.__name__, fn) for fn in (seed, make, backward)]
    plan = PipelinePlan({t: TaskSchedule() for t in tasks}, [("make", "seed"), ("backward", "make")])
    pipe = SWPipeline(plan, "cpu")
    pipe.enable_shortcut("make")
    for i in range(3):  # only the first run's graph reaches x, once
        pipe.run_one_serial_iter(None, i)
    assert torch.equal(x.grad, torch.ones(2))  # type: ignore[arg-type]


def test_swp_64_what_contains_itself_ends() -> None:
    a: dict[str, Any] = {"x": torch.ones(1)}
    a["self"] = a
    restored = _restore_val(_cache_val(a))
    assert restored["self"] is a
    assert torch.equal(restored["x"], a["x"])


def test_swp_64_the_copy_is_no_view() -> None:
    x = torch.ones(2)
    cached = _cache_val([x])
    x.add_(1)
    assert torch.equal(_restore_val(cached)[0], torch.ones(2))


def test_swp_66_graft_grad_passes_the_gradient_on_and_zeros_upstream() -> None:
    restored = torch.ones(2, requires_grad=True)
    upstream = torch.ones(3, requires_grad=True)
    out = _GraftGrad.apply(restored, [torch.zeros(3)], upstream)
    assert torch.equal(out, restored)
    (out * torch.tensor([2.0, 5.0])).sum().backward()
    assert torch.equal(restored.grad, torch.tensor([2.0, 5.0]))
    assert torch.equal(upstream.grad, torch.zeros(3))


class FusedEmbedding(torch.autograd.Function):
    """A table that is updated in its own backward, like a fused table-batched embedding."""

    @staticmethod
    def forward(ctx: Any, table: Any, ids: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        ctx.table, ctx.ids = table, ids
        return table.weight[ids] + anchor

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.table.updates += 1
        ctx.table.weight.index_add_(0, ctx.ids, grads[0], alpha=-0.1)
        return None, None, torch.zeros(())


class Model:
    """An embedding (dense gradient), a fused table, and bottom and top layers, with a task for each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.emb = torch.nn.Embedding(10, 4)
        self.fused = SimpleNamespace(weight=torch.randn(10, 4), updates=0)
        self.anchor = torch.zeros((), requires_grad=True)
        self.bottom, self.top = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.loss: list[float] = []

    def tasks(self) -> dict[str, PipelineTask]:
        tasks = {}
        for fn in (self.h2d, self.lookup, self.dense, self.head, self.backward):
            tasks[fn.__name__] = PipelineTask(fn.__name__, fn)
        return tasks

    def h2d(self, ctx: IterContext) -> None:
        ctx.ids, ctx.x = ctx.batch["ids"].clone(), ctx.batch["x"].clone()

    def lookup(self, ctx: IterContext) -> None:
        ctx.sparse = {"plain": self.emb(ctx.ids), "fused": FusedEmbedding.apply(self.fused, ctx.ids, self.anchor)}
        del ctx.ids

    def dense(self, ctx: IterContext) -> None:
        ctx.hidden = torch.relu(self.bottom(ctx.x + ctx.sparse["plain"])) * ctx.sparse["fused"]

    def head(self, ctx: IterContext) -> None:
        ctx.loss = self.top(ctx.hidden).square().mean()

    def backward(self, ctx: IterContext) -> None:
        for p in self.parameters().values():
            p.grad = None
        ctx.loss.backward()
        self.loss.append(ctx.loss.item())

    def parameters(self) -> dict[str, torch.Tensor]:
        named = {"emb": self.emb.weight, "anchor": self.anchor}
        for layer in ("bottom", "top"):
            named |= {f"{layer}.{n}": p for n, p in getattr(self, layer).named_parameters()}
        return named

    def grads(self) -> dict[str, Any]:
        return {n: None if p.grad is None else p.grad.clone() for n, p in self.parameters().items()}


CHAIN = ["h2d", "lookup", "dense", "head", "backward"]
OWN = {
    "h2d": [],
    "lookup": ["emb", "anchor"],
    "dense": ["bottom.weight", "bottom.bias"],
    "head": ["top.weight", "top.bias"],
}


def pipeline(model: Model, **kwargs: Any) -> SWPipeline:
    tasks = model.tasks()
    schedule = {t: TaskSchedule(stage=int(n != "h2d"), **kwargs) for n, t in tasks.items()}
    return SWPipeline(PipelinePlan(schedule, list(zip(CHAIN[1:], CHAIN, strict=False))), "cpu")  # type: ignore[arg-type]


def batch() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {"ids": torch.tensor([1, 3, 3]), "x": torch.randn(3, 4)}


def normal_run() -> tuple[dict[str, Any], Model]:
    """Return the gradients of one normal iteration on a new model. The fused update changes the next iteration's."""
    model = Model()
    pipeline(model).run_one_serial_iter(batch())
    return model.grads(), model


@pytest.mark.parametrize("task", ["h2d", "lookup", "dense", "head"])
def test_swp_66_replays_give_the_gradients_of_the_normal_run_twice_in_a_row(task: str) -> None:
    """Parameters after the replayed task have the same .grad, its own have none, and earlier ones have zeros.

    The graphs of earlier tasks run, so a fused table's backward is called as often as in normal runs.
    """
    expected, _ = normal_run()
    assert all(g is not None and g.abs().sum() > 0 for n, g in expected.items() if n != "anchor")
    model = Model()
    pipe = pipeline(model)
    pipe.enable_shortcut(task)
    pipe.run_one_serial_iter(batch(), 0)  # records
    assert_grads(model.grads(), expected)
    for again in (1, 2):
        if task == "h2d":  # no part of the model is replayed, so the last run's fused update must be undone
            model.fused.weight = Model().fused.weight
        updates = model.fused.updates
        pipe.run_one_serial_iter(batch(), again)
        wanted = dict(expected)
        for name in OWN[task]:
            wanted[name] = None
        for earlier in CHAIN[: CHAIN.index(task)]:
            wanted |= {name: torch.zeros_like(expected[name]) for name in OWN[earlier]}
        assert_grads(model.grads(), wanted)
        assert model.fused.updates == updates + (task != "lookup")
    assert model.loss[0] == model.loss[1] == model.loss[2]


def assert_grads(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert got.keys() == wanted.keys()
    for name, grad in wanted.items():
        if grad is None:
            assert got[name] is None, name
        else:
            assert torch.equal(got[name], grad), name


@pytest.mark.parametrize("task", ["h2d", "lookup", "dense", "head"])
def test_swp_43_replays_in_the_pipeline_do_what_serial_ones_do(task: str) -> None:
    serial, piped = Model(), Model()
    for model, way in ((serial, "run_serial"), (piped, "run")):
        pipe = pipeline(model)
        pipe.enable_shortcut(task)
        getattr(pipe, way)([batch() for _ in range(5)])
    assert serial.loss == piped.loss
    assert_grads(piped.grads(), serial.grads())


def test_swp_66_zeros_fit_a_batch_of_another_size() -> None:
    model = Model()
    pipe = pipeline(model)
    pipe.enable_shortcut("head")  # the size of its result does not depend on the batch's size
    pipe.run_one_serial_iter(batch(), 0)
    larger = {"ids": torch.tensor([1, 2, 3, 4, 5]), "x": torch.randn(5, 4)}
    pipe.run_one_serial_iter(larger, 1)
    assert torch.equal(model.emb.weight.grad, torch.zeros_like(model.emb.weight))


def counting(name: str, calls: list[str], io: list[DeclaredIO] | None = None) -> PipelineTask:
    def fn(ctx: IterContext) -> None:
        calls.append(name)
        ctx.kept = (*getattr(ctx, "kept", ()), name)
        if hasattr(ctx, "gone"):
            del ctx.gone

    return PipelineTask(name, fn, io or [])


def test_swp_62_63_first_run_records_later_ones_replay_added_changed_and_deleted_attributes() -> None:
    calls: list[str] = []
    contexts: list[IterContext] = []

    def first(ctx: IterContext) -> None:
        contexts.append(ctx)
        ctx.gone, ctx.untouched = 1, object()

    plan = PipelinePlan(
        {PipelineTask("first", first): TaskSchedule(), counting("a", calls): TaskSchedule()}, [("a", "first")]
    )
    pipe = SWPipeline(plan, "cpu")
    pipe.enable_shortcut("a")
    for i in range(3):
        pipe.run_one_serial_iter(i, i)
    assert calls == ["a"]
    assert [vars(c).get("kept") for c in contexts] == [("a",)] * 3
    assert not any(hasattr(c, "gone") for c in contexts)
    assert contexts[0].untouched is not contexts[1].untouched
    pipe.disable_shortcut("a")  # SWP-44: runs again, and forgets its recording
    pipe.run_one_serial_iter(3, 3)
    pipe.enable_shortcut("a")
    pipe.run_one_serial_iter(4, 4)
    pipe.run_one_serial_iter(5, 5)
    assert calls == ["a"] * 3


def test_swp_2_and_68_declared_io_replays_a_shared_buffer() -> None:
    shared_buffer: dict[str, Any] = {}

    def encode(ctx: IterContext) -> None:
        shared_buffer["code"] = torch.tensor([1.0, 2.0])

    io = [DeclaredIO(capture=lambda: dict(shared_buffer), restore=lambda s: shared_buffer.update(s))]
    pipe = SWPipeline(PipelinePlan({PipelineTask("encode", encode, io): TaskSchedule()}, []), "cpu")
    pipe.enable_shortcut("encode")
    pipe.run_one_serial_iter(None)
    shared_buffer["code"].zero_()  # the snapshot is a copy
    shared_buffer.clear()
    pipe.run_one_serial_iter(None, 1)
    assert torch.equal(shared_buffer["code"], torch.tensor([1.0, 2.0]))


def test_swp_43_unknown_tasks_are_refused_and_nothing_is_switched() -> None:
    pipe = SWPipeline(PipelinePlan({counting("Forward", []): TaskSchedule()}, []), "cpu")
    with pytest.raises(ValueError, match=r"'Forwrad'; did you mean 'Forward'"):
        pipe.enable_shortcut("Forward", "Forwrad")
    with pytest.raises(ValueError, match="nobody"):
        pipe.disable_shortcut("nobody")
    assert "shortcuts=[]" in repr(pipe)


def test_swp_43_shortcuts_change_between_runs_only() -> None:
    pipe = SWPipeline(PipelinePlan({counting("a", []): TaskSchedule()}, []), "cpu")
    pipe.fill_pipeline(range(3))
    with pytest.raises(RuntimeError, match="drain"):
        pipe.enable_shortcut("a")
    pipe.drain()
    pipe.enable_shortcut("a")


@pytest.mark.parametrize(
    "engine", [SWPipeline, lambda plan, dev: DataFlowPipeline(plan, 4, dev)], ids=["clocked", "flow"]
)
def test_swp_43_45_pipelined_runs_record_once_and_drain_keeps_what_was_recorded(engine: Any) -> None:
    calls: list[str] = []
    tasks = [counting("a", calls), counting("b", calls)]
    plan = PipelinePlan(
        {tasks[0]: TaskSchedule(globally_ordered=True), tasks[1]: TaskSchedule(stage=1, stream="s")}, [("b", "a")]
    )
    pipe = engine(plan, "cpu")
    pipe.enable_shortcut(tasks[0])
    pipe.run(range(6))
    assert calls.count("a") == 1
    assert calls.count("b") == 6
    data = pipe.fill_pipeline(range(6))
    pipe.progress(data)
    pipe.drain()
    assert calls.count("a") == 1


def test_swp_43_a_shortcut_of_an_ordered_task_still_takes_its_turn() -> None:
    places = {
        counting("a", []): TaskSchedule(globally_ordered=True),
        counting("b", []): TaskSchedule(thread_group="io"),
    }
    pipe = SWPipeline(PipelinePlan(places, [("b", "a")]), "cpu")
    turns: list[int] = []
    once = pipe._sequencer.execute_ordered
    pipe._sequencer.execute_ordered = lambda seq, fn: turns.append(seq) or once(seq, fn)  # type: ignore[method-assign]
    pipe.enable_shortcut("a")
    pipe.run(range(4))
    assert turns == [0, 1, 2, 3]


def test_a_recording_run_that_failed_is_recorded_by_the_next_one() -> None:
    broken = [True]

    def fn(ctx: IterContext) -> None:
        if broken.pop() if broken else False:
            raise ValueError("once")
        ctx.value = 5

    pipe = SWPipeline(PipelinePlan({PipelineTask("a", fn): TaskSchedule()}, []), "cpu")
    pipe.enable_shortcut("a")
    with pytest.raises(PipelineError, match="once"):
        pipe.run(range(4))
    pipe.drain()
    pipe.run(range(4))
    assert pipe._shortcuts._recorded["a"].values == {"value": 5}


def test_a_recording_has_no_effects_of_tasks_that_run_meanwhile() -> None:
    """B runs in another thread while A is recorded.

    The attributes that B sets and deletes stay B's in each iteration.
    """
    b_is_done, seen = threading.Event(), []

    def a(ctx: IterContext) -> None:
        b_is_done.wait(10)
        ctx.x = 1
        del ctx.batch_copy

    def b(ctx: IterContext) -> None:
        ctx.y = ctx.batch * 10
        b_is_done.set()

    def c(ctx: IterContext) -> None:
        seen.append((ctx.x, ctx.y, hasattr(ctx, "batch_copy"), ctx.batch))

    def first(ctx: IterContext) -> None:
        ctx.batch_copy = ctx.batch

    tasks = [PipelineTask(name, fn) for name, fn in (("First", first), ("A", a), ("B", b), ("C", c))]
    schedule = {
        "First": TaskSchedule(),
        "A": TaskSchedule(stream="sa", thread_group="ta"),
        "B": TaskSchedule(stream="sb", thread_group="tb"),
        "C": TaskSchedule(),
    }
    plan = PipelinePlan(
        {task: schedule[task.name] for task in tasks}, [("A", "First"), ("B", "First"), ("C", "A"), ("C", "B")]
    )
    pipeline = SWPipeline(plan, device="cpu")
    pipeline.enable_shortcut("A")
    pipeline.run(range(4))
    assert seen == [(1, 10 * i, False, i) for i in range(4)]


def in_place(ctx: IterContext) -> None:
    ctx.x.div_(255)
    ctx.log["n"] = ctx.log.get("n", 0) + 1
    ctx.queue[0].append(ctx.iter_idx)
    ctx.holder.t = ctx.holder.t + 1
    if ctx.iter_idx == 0:
        ctx.seen.clear()


def made_anew(ctx: IterContext) -> None:
    ctx.x, ctx.y = torch.full((2,), 255.0), torch.full((1,), float(ctx.iter_idx))
    ctx.log, ctx.queue, ctx.seen = {}, deque([[]]), {7}
    ctx.holder, ctx.plain = SimpleNamespace(t=torch.zeros(1)), [ctx.iter_idx, "text"]


def shown(ctx: IterContext) -> tuple[Any, ...]:
    return ctx.x[0].item(), ctx.log, list(ctx.queue), ctx.seen, ctx.holder.t.item(), ctx.y.item(), ctx.plain


@pytest.mark.parametrize("way", ["run", "run_serial"])
def test_swp_62_work_in_place_is_replayed(way: str) -> None:
    """Values that the task does not change belong to each iteration: y and plain."""
    results: list[tuple[Any, ...]] = []
    tasks = [PipelineTask(fn.__name__, fn) for fn in (made_anew, in_place)]
    plan = PipelinePlan({task: TaskSchedule() for task in tasks}, [("in_place", "made_anew")])
    pipe = SWPipeline(plan, "cpu")
    pipe.enable_shortcut("in_place")
    getattr(pipe, way)(range(3), on_retire=lambda ctx: results.append(shown(ctx)))
    assert results == [(1.0, {"n": 1}, [[0]], set(), 1.0, float(i), [i, "text"]) for i in range(3)]
    assert pipe._shortcuts._recorded["in_place"].values.keys() == {"x", "log", "queue", "holder", "seen"}


def test_swp_66_work_in_place_gets_its_gradient_and_inference_has_no_versions() -> None:
    weight = torch.ones(2, requires_grad=True)

    def double(ctx: IterContext) -> None:
        ctx.x.mul_(2)

    def forward(ctx: IterContext) -> None:
        ctx.x = weight * 3

    tasks = [PipelineTask(fn.__name__, fn) for fn in (forward, double)]
    pipe = SWPipeline(PipelinePlan({task: TaskSchedule() for task in tasks}, [("double", "forward")]), "cpu")
    pipe.enable_shortcut("double")
    contexts: list[IterContext] = []
    pipe.run_serial(range(2), on_retire=contexts.append)
    assert torch.equal(contexts[1].x.detach(), torch.full((2,), 6.0))
    contexts[1].x.sum().backward()
    assert torch.equal(weight.grad, torch.zeros(2))  # type: ignore[arg-type]
    pipe.disable_shortcut("double")
    pipe.enable_shortcut("double")
    with torch.inference_mode():
        pipe.run_serial(range(2))


@pytest.mark.parametrize(("device", "is_refused"), [("cpu", True), ("simulated", False)])
def test_work_in_place_is_refused_where_another_task_may_have_done_it(device: str, is_refused: bool) -> None:
    """B may run while A is recorded, so the recorder cannot tell which of them changed x in place.

    With one thread, tasks never overlap.
    """
    tasks = [PipelineTask(n, fn) for n, fn in (("First", made_anew), ("A", in_place), ("B", lambda ctx: None))]
    schedule = dict(zip(tasks, (TaskSchedule(), TaskSchedule(), TaskSchedule(stream="b")), strict=True))
    pipe = SWPipeline(PipelinePlan(schedule, [("A", "First"), ("B", "First")]), device)
    pipe.enable_shortcut("A")
    if is_refused:
        message = "'A' failed in iteration 0: ValueError: ctx.x was changed in place by 'A' or by 'B', which may run"
        with pytest.raises(PipelineError, match=message):
            pipe.run(range(3))
        pipe.drain()
        pipe.run_one_serial_iter(None)  # in a serial iteration, A runs alone
    results: list[tuple[Any, ...]] = []
    pipe.run(range(3), on_retire=lambda ctx: results.append(shown(ctx)))
    assert [x for x, *_ in results] == [1.0] * 3


def test_a_recording_has_no_deletions_of_tasks_that_are_replayed_meanwhile() -> None:
    shortcuts = Shortcuts()

    def delete(ctx: IterContext) -> None:
        del ctx.tmp

    def use(ctx: IterContext) -> None:
        replaying = threading.Thread(target=shortcuts.replay, args=(deleting, ctx))
        replaying.start()
        replaying.join()
        ctx.x = 1

    deleting, using = PipelineTask("delete", delete), PipelineTask("use", use)
    contexts = [IterContext(None, i) for i in range(3)]
    for ctx in contexts[:2]:
        ctx.tmp = 7
    shortcuts.record(deleting, contexts[0], [])
    shortcuts.record(using, contexts[1], ["delete"])
    assert not hasattr(contexts[1], "tmp")
    recorded = shortcuts._recorded["use"]
    assert (recorded.values, recorded.deleted) == ({"x": 1}, [])
    shortcuts.replay(deleting, contexts[2])  # this context has no tmp


@pytest.mark.filterwarnings("ignore::pipelines.schedule.PlanWarning")
@pytest.mark.parametrize(
    ("order", "stream", "is_refused"),
    [
        ("clock", "s", False),
        ("clock", "another", True),
        ("stages", "s", False),
        ("stages", "another", True),
        ("dependencies", "s", True),
    ],
)
def test_tasks_that_a_stream_keeps_in_order_do_not_run_at_the_same_time(
    order: str, stream: str, is_refused: bool
) -> None:
    """Two threads submit A and B. On one stream, the second waits until the first one's function has returned."""
    tasks = [PipelineTask(n, fn) for n, fn in (("First", made_anew), ("A", in_place), ("B", lambda ctx: None))]
    places = [TaskSchedule(), TaskSchedule(stream="s", thread_group="a"), TaskSchedule(stream=stream, thread_group="b")]
    plan = PipelinePlan(dict(zip(tasks, places, strict=True)), [("A", "First"), ("B", "First")])
    pipe = SWPipeline(plan, "simulated") if order == "clock" else DataFlowPipeline(plan, 2, "simulated", order=order)
    pipe.enable_shortcut("A")
    if is_refused:
        with pytest.raises(PipelineError, match=r"ctx\.x was changed in place by 'A' or by 'B'"):
            pipe.run(range(3))
        return
    results: list[tuple[Any, ...]] = []
    pipe.run(range(3), on_retire=lambda ctx: results.append(shown(ctx)))
    assert [x for x, *_ in results] == [1.0] * 3


def test_a_watched_context_takes_any_attribute() -> None:
    """While a task is recorded, its context has another class, whose names must not collide with attributes."""
    seen: list[Any] = []
    names = {name for name in vars(_WatchedContext) if not name.startswith("__")} | {"recordings", "_note"}

    def load(ctx: IterContext) -> None:
        for name in names:
            setattr(ctx, name, [name])
        ctx.rate = 16_000

    def use(ctx: IterContext) -> None:
        seen.append({name: getattr(ctx, name) for name in (*names, "rate")})

    tasks = [PipelineTask(fn.__name__, fn) for fn in (load, use)]
    pipe = SWPipeline(PipelinePlan({task: TaskSchedule() for task in tasks}, [("use", "load")]), "cpu")
    pipe.enable_shortcut("load", "use")
    pipe.run(range(3))
    assert seen == [{**{name: [name] for name in names}, "rate": 16_000}]
