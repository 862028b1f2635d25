"""Types of replayed values: dict subclasses, factories, named tuples, and one tensor twice."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="shortcuts need torch")

from pipelines.schedule import IterContext, PipelinePlan, PipelineTask, SWPipeline, TaskSchedule  # noqa: E402
from pipelines.schedule.devices.tensors import cuda_tensors, walk_tensors  # noqa: E402
from pipelines.schedule.engine.copies import _cache_val, _restore_val, with_tensors  # noqa: E402


@dataclass
class Output(OrderedDict):
    """A dict that is also a dataclass with the same values, like transformers' ModelOutput."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) is not None:
                super().__setitem__(field.name, getattr(self, field.name))

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __delitem__(self, *args: Any) -> None:
        raise TypeError("cannot delete")

    def to_tuple(self) -> tuple:
        return tuple(self[key] for key in self)


class Frozen(dict):
    """A dict that refuses changes and has an attribute."""

    def __init__(self, parts: dict, extra: Any) -> None:
        super().__init__(parts)
        self.extra = extra

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("frozen")


class Rows(list):
    """A list with an attribute, whose constructor does not take its elements."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__([first, second])
        self.extra = second


class Pair(NamedTuple("Pair", [("left", Any), ("right", Any)])):
    """A named tuple with a custom constructor."""

    def __new__(cls, both: Any) -> Pair:
        return super().__new__(cls, both, both)


class NeedsArgument:
    """A class that cannot be instantiated without an argument."""

    def __new__(cls, value: Any) -> NeedsArgument:
        return object.__new__(cls)

    def __init__(self, value: Any) -> None:
        self.value = value


def tensor() -> Any:
    return torch.arange(3.0, requires_grad=True) * 2


MADE: dict[str, Callable[[Any], Any]] = {
    "ModelOutput": lambda t: Output(loss=t, logits=[t, 1]),
    "defaultdict": lambda t: defaultdict(list, {"a": [t]}),
    "OrderedDict": lambda t: OrderedDict([("z", t), ("a", 1)]),
    "Counter": lambda t: Counter({"a": 3, "b": t}),
    "UserDict": lambda t: UserDict({"a": t}),
    "frozen dict": lambda t: Frozen({"a": t}, {"b": t}),
    "list subclass": lambda t: Rows(t, 2 * t),
    "named tuple": lambda t: Pair(t),
    "sorted": torch.sort,
    "deque": lambda t: deque([t, 1], maxlen=2),
    "set": lambda t: {t, 1},
    "frozenset": lambda t: frozenset([t]),
    "object": NeedsArgument,
    "size": lambda t: (t.shape, t),
    "nested": lambda t: {"rows": [Output(loss=(t, {"x": t}))], "d": defaultdict(dict, {1: {"y": t}})},
}


def content(value: Any) -> Any:
    """Return types and values in a form that can be compared. Tensors become lists of numbers."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist(), value.requires_grad)
    parts: Any = None
    if isinstance(value, dict):
        parts = [(key, content(part)) for key, part in value.items()]
    elif isinstance(value, list | tuple | deque):
        parts = [content(part) for part in value]
    elif isinstance(value, set | frozenset):
        parts = sorted(map(repr, map(content, value)))
    own = {key: content(part) for key, part in getattr(value, "__dict__", {}).items()}
    special = [getattr(value, name, None) for name in ("maxlen", "default_factory")]
    return (type(value), parts, own, special, None if own or parts is not None else value)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_swp_64_what_is_restored_has_its_types_and_its_own_tensors(make: Callable[[Any], Any]) -> None:
    value = make(tensor())
    wanted, cached = content(value), _cache_val(value)
    first, second = _restore_val(cached), _restore_val(cached)
    assert content(first) == content(second) == wanted
    mine, yours, theirs = ([t for _, t in walk_tensors({"v": v})] for v in (value, first, second))
    assert len(mine) == len(yours) == len(theirs) > 0
    assert not {id(t) for t in mine} & {id(t) for t in yours} and not {id(t) for t in yours} & {id(t) for t in theirs}
    assert all(t.is_leaf for t in yours)
    assert not {t.data_ptr() for t in mine} & {t.data_ptr() for t in yours}
    for restored, original in ((yours, mine), (theirs, mine)):  # a shared tensor is shared again
        assert [[a is b for b in restored] for a in restored] == [[a is b for b in original] for a in original]


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_swp_66_a_graft_reaches_every_tensor_of_every_type(make: Callable[[Any], Any]) -> None:
    value = make(tensor())
    numbers = sorted(t.double().tolist() for _, t in walk_tensors({"v": value}))
    changed = with_tensors(_restore_val(_cache_val(value)), lambda t: t * 2)
    assert sorted((t.double() / 2).tolist() for _, t in walk_tensors({"v": changed})) == numbers
    if isinstance(changed, Output):
        assert changed.loss is changed["loss"] is changed.to_tuple()[0]
    if isinstance(changed, defaultdict):
        assert changed["new"] == []


@pytest.mark.parametrize("kind", ["ModelOutput", "defaultdict", "frozen dict", "named tuple", "nested"])
def test_swp_43_a_replayed_task_gives_the_same_types_and_gradients(kind: str) -> None:
    weight, seen = torch.ones(3, requires_grad=True), []

    def encode(ctx: IterContext) -> None:
        ctx.hidden = weight * 3

    def make(ctx: IterContext) -> None:
        ctx.made = MADE[kind](ctx.hidden * torch.arange(3.0))

    def backward(ctx: IterContext) -> None:
        weight.grad = None
        sum(t.sum() for t in {id(t): t for _, t in walk_tensors({"v": ctx.made})}.values()).backward()
        seen.append((content(ctx.made)[:2], weight.grad))

    tasks = [PipelineTask(fn.__name__, fn) for fn in (encode, make, backward)]
    plan = PipelinePlan({t: TaskSchedule() for t in tasks}, [("make", "encode"), ("backward", "make")])
    pipe = SWPipeline(plan, "cpu")
    pipe.enable_shortcut("make")
    pipe.run(range(4))
    assert [what for what, _ in seen] == [seen[0][0]] * 4
    assert all(torch.equal(grad, torch.zeros(3)) for _, grad in seen[1:])  # the replay has no graph
    assert not torch.equal(seen[0][1], torch.zeros(3))


def test_a_later_change_of_a_container_does_not_reach_the_copy() -> None:
    value = {"d": deque([1]), "s": {1}, "x": defaultdict(int, a=1)}
    cached = _cache_val(value)
    value["d"].append(2), value["s"].add(2), value["x"].update(a=5)
    restored = _restore_val(cached)
    assert (restored["d"], restored["s"], restored["x"]) == (deque([1]), {1}, {"a": 1})


# --- the walk over a context


class OnCuda(torch.Tensor):
    """A tensor that claims to be in CUDA memory."""

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


def on_cuda() -> Any:
    return torch.ones(2).as_subclass(OnCuda)


@pytest.mark.parametrize(
    "hide",
    [
        lambda t: [1] * 5000 + [t],
        lambda t: [t] + [1] * 5000,
        lambda t: [None] * 4000 + [t] + [None] * 999,
        lambda t: [{"a": 1}] * 3000 + [{"a": t}],
        lambda t: [1] * 499 + [t] + [1] * 500,
        lambda t: {**dict.fromkeys(range(5000), 1), "t": t},
        lambda t: {*range(5000), t},
        lambda t: deque([*range(5000), t]),
        lambda t: Frozen({"a": 1}, [t]),
        lambda t: Rows(1, [t]),
        lambda t: SimpleNamespace(a=[(1, SimpleNamespace(b=t))]),
        lambda t: Output(loss=t),
    ],
)
def test_tensors_are_found_where_they_may_be(hide: Callable[[Any], Any]) -> None:
    tensor = on_cuda()
    assert any(item is tensor for item in cuda_tensors({"batch": hide(tensor), "n": 3}))
    assert any(item is tensor for _, item in walk_tensors({"batch": hide(tensor), "n": 3}))


@pytest.mark.parametrize(
    "values",
    [list(range(100_000)), tuple(range(100_000)), ["word"] * 100_000, [0.5] * 100_000, [[1] * 50_000, [2] * 50_000]],
    ids=["list", "tuple", "words", "floats", "nested"],
)
def test_a_long_list_of_plain_values_costs_microseconds(values: Any) -> None:
    """The walk runs before each submission. It used to take 195 ms for each of nine tasks."""
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        assert not list(cuda_tensors({"batch": values}))
        best = min(best, time.perf_counter() - start)
    assert best < 300e-6
