"""A budget too small for all modules in a sampled step: modules take turns, and the recording lists those measured."""

from __future__ import annotations

import math
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pipelines.readers.recordings import INPUT  # noqa: E402
from pipelines.record.clocks import HOST_CALLS  # noqa: E402
from pipelines.record.modules.turns import Turns  # noqa: E402
from pipelines.record.sampling import HIGHEST_RATE, LOWEST_RATE, Sampling  # noqa: E402
from pipelines.record.spans import record_spans  # noqa: E402
from tests.effort import first_of  # noqa: E402
from tests.readers.inputs.read_tables import loaded  # noqa: E402

MS = 1_000_000
PLAIN = 10 * MS  # duration of a step that is not sampled
ALLOWED = PLAIN  # additional time of a sampled step that a budget of LOWEST_RATE allows


def named(names: str) -> list[tuple[Any, str]]:
    return [(nn.Identity(), name) for name in names]


def turns(modules: list[tuple[Any, str]], costs: dict[str, int], allowed_ns: float, n: int) -> list[str]:
    """Return, for each of n sampled steps, the joined names of the modules that it measures."""
    state, steps = Turns(), []
    state.measured(costs)
    for _ in range(n):
        steps.append("".join(name for _, name in state.next(modules, allowed_ns)))
    return steps


def test_modules_take_turns_in_the_order_of_the_model() -> None:
    modules, costs = named("abcde"), dict.fromkeys("abcde", 5)
    assert turns(modules, costs, 10, 5) == ["ab", "cd", "ea", "bc", "de"]
    assert turns(modules, costs, 24, 2) == ["abcd", "eabc"]
    assert turns(modules, costs, 24, 6)[2:] == ["deab", "cdea", "bcde", "abcd"]
    assert turns(modules, costs, 25, 2) == ["abcde", "abcde"]
    assert turns(modules, costs, math.inf, 1) == ["abcde"]
    assert turns(modules, costs, -1, 3) == ["a", "b", "c"]
    assert turns([], {}, 10, 1) == [""]


def test_a_module_that_costs_too_much_has_its_turn_alone() -> None:
    assert turns(named("abcd"), {"a": 1, "b": 100, "c": 1, "d": 1}, 10, 4) == ["a", "b", "cda", "b"]


def test_a_module_of_unknown_cost_counts_as_the_average() -> None:
    assert turns(named("abc"), {}, 10**9, 2) == ["a", "b"]  # no costs are known yet
    assert turns(named("abc"), {"a": 2, "b": 4}, 9, 1) == ["abc"]
    assert turns(named("abc"), {"a": 2, "b": 4}, 8, 1) == ["ab"]


def test_a_model_may_change_between_steps() -> None:
    state = Turns()
    a, b, c, new = named("abcn")
    state.measured(dict.fromkeys("abc", 5))
    assert state.next([a, b, c], 5) == [a]
    assert state.next([a, new, b, c], 10) == [new, b]
    assert state.next([a, new, c], 5) == [c]
    assert state.next([a, new, c], 10) == [a, new]
    state.measured({"a": 11})
    assert state.next([a], 10) == [a] and state._hook_ns == {"a": 11} and len(state._turn_of) == 1


def run(
    costs: dict[str, int], outside_ns: int, n: int = 60_000, budget: float = LOWEST_RATE
) -> tuple[Sampling, list[str]]:
    """Sample a loop whose modules take these ns in hooks.

    Return the Sampling and, for each sampled step, the joined names of the modules that it measured.
    """
    sampling, state, steps = Sampling(None, budget, seed=0), Turns(), []
    modules = named("".join(costs))
    for _ in range(n):
        if sampling.choose():
            measured = {name: costs[name] for _, name in state.next(modules, sampling.allowed_ns)}
            state.measured(measured)
            hook_ns = sum(measured.values())
            sampling.sampled_step(PLAIN + outside_ns + hook_ns, hook_ns)
            steps.append("".join(measured))
        else:
            sampling.plain_step(PLAIN)
    return sampling, steps


@pytest.mark.parametrize(
    ("cost_ns", "outside_ns", "n_measured"),
    first_of(
        [
            (ALLOWED // 10, 0, 10),  # all ten fit exactly
            (ALLOWED // 10 + 1, 0, 9),
            (ALLOWED // 20, ALLOWED // 2, 10),
            (ALLOWED // 20, ALLOWED // 2 + 1, 9),
            (ALLOWED // 4, ALLOWED // 2, 2),
            (2 * ALLOWED, 0, 1),
            (ALLOWED // 10, 3 * ALLOWED, 1),
        ],
        4,
    ),
)
def test_a_budget_sizes_the_subset_by_what_modules_cost(cost_ns: int, outside_ns: int, n_measured: int) -> None:
    sampling, steps = run(dict.fromkeys("abcdefghij", cost_ns), outside_ns)
    assert {len(step) for step in steps[-20:]} == {n_measured}
    times_measured = Counter("".join(steps))
    assert len(times_measured) == 10 and max(times_measured.values()) - min(times_measured.values()) <= 2
    extra_ns = outside_ns + n_measured * cost_ns
    spent = sampling.cost_ns or 0
    assert spent <= LOWEST_RATE * (60_000 * PLAIN + spent) + extra_ns
    assert len(steps) >= 0.8 * 60_000 * min(LOWEST_RATE, LOWEST_RATE * PLAIN / extra_ns)


def test_the_rate_falls_before_modules_are_left_out() -> None:
    for cost_ns, rate in (
        (ALLOWED // 1000, HIGHEST_RATE),
        (ALLOWED // 30, 0.03),
        (ALLOWED // 10, LOWEST_RATE),
        (ALLOWED, LOWEST_RATE),
    ):
        sampling, steps = run(dict.fromkeys("abcdefghij", cost_ns), 0)
        assert sampling.rate == pytest.approx(rate, rel=1e-4)
        assert (set(map(len, steps[-5:])) == {10}) == (cost_ns <= ALLOWED // 10)


def test_a_fixed_rate_measures_all_modules() -> None:
    sampling = Sampling(0.5, 0.01, seed=0)
    sampling.plain_step(1)
    sampling.sampled_step(10**9, 10**9)
    assert sampling.allowed_ns == math.inf and Sampling(None, 0.01, 0).allowed_ns == math.inf


class Model(nn.Module):
    def __init__(self, second: Any = None) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(4, 4), second or nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample every step. Hooks may take 7 ns per step; each run of a hook and each installation takes 1 ns."""
    ticks = count()
    clock = SimpleNamespace(perf_counter_ns=lambda: next(ticks))
    monkeypatch.setattr("pipelines.record.modules.hooks.time", clock)
    monkeypatch.setattr(Sampling, "choose", lambda self: True)
    monkeypatch.setattr(Sampling, "allowed_ns", 7)


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.rglob(f"{table}-*")) for row in pq.read_table(path).to_pylist()]


def hooked(net: Any) -> set[str]:
    return {name for name, module in net.named_modules() if module._forward_hooks}


def names_by_step(rows: list[dict[str, Any]]) -> dict[int, set[str]]:
    steps: dict[int, set[str]] = {}
    for row in rows:
        steps.setdefault(row["step"], set()).add(row["name"])
    return steps


@pytest.mark.usefixtures("few_at_a_time")
def test_what_was_measured_is_recorded_and_the_rest_has_no_hooks(tmp_path: Path) -> None:
    net, in_body = Model(), []
    with record_spans(net, tmp_path, count_operators=False) as spans:
        for _ in range(9):
            with spans.step(), spans.span("own"):
                in_body.append({name or "Model" for name in hooked(net)})
                net(torch.randn(3, 4)).sum().backward()
    assert spans.unhooked == {}
    modules, calls = rows(tmp_path, "span_sample_modules"), rows(tmp_path, "span_samples")
    con = loaded(INPUT, tmp_path.rglob("*.parquet"))
    columns = "step, name, n_calls, n_modules, hook_ns, is_census"
    stored = con.execute(f"SELECT {columns} FROM span_sample_modules").fetchall()
    assert sorted(stored) == sorted(tuple(row[name] for name in columns.split(", ")) for row in modules)
    steps = names_by_step(modules)
    assert [steps[step] for step in range(9)] == in_body
    assert steps[0] == {"Model"} and 1 < max(map(len, in_body)) < 4 and set.union(*in_body[:4]) == {"Model", "first", "second", "unused"}  # fmt: skip
    assert {row["n_modules"] for row in modules} == {4} and not any(row["is_census"] for row in modules)
    assert all(row["hook_ns"] > 0 for row in modules)
    n_calls = {(row["step"], row["name"]): row["n_calls"] for row in modules}
    assert n_calls == {key: int(key[1] != "unused") for key in n_calls}
    forwards = Counter((row["step"], row["name"]) for row in calls if row["phase"] == "forward")
    assert forwards == Counter(n_calls)
    backwards = Counter((row["step"], row["name"]) for row in calls if row["phase"] == "backward")
    assert backwards == forwards
    # The step and own code have the inputs of the model, whether or not the model was measured.
    around = [row["input_shapes"] for row in calls if row["phase"] in ("step", "own")]
    assert around == ["[[3, 4]]"] * 18
    by_id = {(row["step"], row["span_id"]): row for row in calls}
    for row in calls:
        parent = by_id.get((row["step"], row["parent_id"]))
        assert row["depth"] == (0 if parent is None else parent["depth"] + 1)


@pytest.mark.usefixtures("few_at_a_time")
def test_without_a_call_of_the_model_the_inputs_of_a_step_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sampling, "allowed_ns", 0)  # room for one module
    net = Model()
    with record_spans(net, tmp_path, count_operators=False) as spans:
        for _ in range(3):
            with spans.step(), spans.span("own"):
                net.first(torch.randn(3, 4))
    calls = rows(tmp_path, "span_samples")
    assert {row["input_shapes"] for row in calls if row["phase"] in ("step", "own")} == {None}
    assert {row["input_shapes"] for row in calls if row["name"] == "first"} == {"[[3, 4]]"}


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.slow  # a census imports torch._dynamo
def test_a_census_is_of_all_modules(tmp_path: Path) -> None:
    net = Model()
    with record_spans(net, tmp_path) as spans:
        for n in (1, 1, 1, 2, 1):
            with spans.step():
                net(torch.randn(n, 4)).sum().backward()
    modules = rows(tmp_path, "span_sample_modules")
    sizes = {step: len(names) for step, names in names_by_step(modules).items()}
    assert sizes[0] == 4 and max(sizes[step] for step in range(1, 5)) < 4
    assert {row["step"] for row in modules if row["is_census"]} == {0}


class Refuses(nn.Linear):
    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("takes no hooks")


class BadOutput(dict):
    def values(self) -> Any:
        raise ValueError("no values")


class Bad(nn.Module):
    def forward(self, x: Any) -> Any:
        return BadOutput()


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("case", ["refuses", "bad_output", "raises"])
def test_a_module_that_cannot_be_measured_takes_its_turn_and_stops_nobody(case: str, tmp_path: Path) -> None:
    net: Any = {"refuses": Model(Refuses(4, 4)), "bad_output": Model(Bad()), "raises": Model(nn.Linear(5, 5))}[case]
    n_raised = 0
    with record_spans(net, tmp_path, count_operators=False) as spans:
        for _ in range(9):
            try:
                with spans.step():
                    net(torch.randn(3, 4))
            except RuntimeError:
                n_raised += 1
            assert not hooked(net) and not any(module._forward_pre_hooks for module in net.modules())
    assert n_raised == (9 if case == "raises" else 0)
    measured = Counter(row["name"] for row in rows(tmp_path, "span_sample_modules"))
    others = {name: n for name, n in measured.items() if name != "second"}
    assert len(others) == 3 and max(others.values()) - min(others.values()) <= 2
    assert ("second" in measured) == (case != "refuses") and ("second" in spans.unhooked) == (case != "raises")
    failed = {(row["name"], row["is_failed"]) for row in rows(tmp_path, "span_samples") if row["phase"] == "forward"}
    assert ("first", False) in failed and (("second", True) in failed) == (case == "raises")


class Hides(nn.Module):
    """A module whose child works on another device than the module's inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(4, 4, device="meta")

    def forward(self, x: Any) -> Any:
        self.child(torch.empty(2, 4, device="meta"))
        return x + 1


@pytest.mark.usefixtures("few_at_a_time")
def test_work_that_no_clock_follows_is_remembered_while_its_module_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans around work that no clock follows keep the clock HOST_CALLS while its module is not measured.

    This includes the modules and own code around the module, although these modules are never measured in the same
    step.
    """
    monkeypatch.setattr(Sampling, "allowed_ns", 0)  # room for one module
    net = Model(Hides())
    with record_spans(net, tmp_path, count_operators=False) as spans:
        for _ in range(11):
            with spans.step():
                with spans.span("load"), spans.span("second"):  # not the module of that name
                    torch.randn(3)
                with spans.span("call"):
                    net(torch.randn(2, 4))
    untimed = [("step", "step"), ("call", "own"), ("Model", "forward"), ("second", "forward"), ("second.child", "forward")]  # fmt: skip
    calls = rows(tmp_path, "span_samples")
    first = min(row["step"] for row in calls if row["name"] == "second.child")
    for row in calls:
        is_untimed = row["step"] >= first and (row["name"], row["phase"]) in untimed
        assert row["clock"] == (HOST_CALLS if is_untimed else "host"), row
    later = {(row["name"], row["phase"]) for row in calls if row["step"] > first}
    assert later == {*untimed, ("first", "forward"), ("load", "own"), ("second", "own")}
