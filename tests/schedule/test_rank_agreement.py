"""The agreement of ranks before each iteration, with two ranks in two threads (SWP-4, SWP-67).

test_ranks.py uses gloo.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the engines need torch")

from pipelines.schedule import DataFlowPipeline, PipelineError, PipelinePlan, SWPipeline  # noqa: E402
from pipelines.schedule.engine.rank_agreement import Agreement  # noqa: E402
from tests.schedule.plans import Diary, plan_of  # noqa: E402


class Group:
    """A process group of two threads."""

    def __init__(self) -> None:
        self._barrier, self._answers = threading.Barrier(2, timeout=20), []

    def all_reduce(self, answer: Any) -> None:
        self._answers.append(answer.clone())
        self._barrier.wait()
        answer.copy_(torch.stack(self._answers[-2:]).amin(0))
        self._barrier.wait()


@pytest.fixture(autouse=True)
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agreement, "ranks", 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda answer, op, group: group.all_reduce(answer))


def collectives(diary: Diary) -> PipelinePlan:
    """Return a plan of two collectives on two streams, in stages 0 and 1, and a last task in stage 2."""
    ordered = {"a": True, "b": True}
    streams = {"a": "dist", "b": "reduce"}
    stages = {"a": 0, "b": 1, "m": 2}
    return plan_of(stages, [("b", "a"), ("m", "b")], diary=diary, globally_ordered=ordered, stream=streams)


Loop = Callable[[Any], None]


def loop(*with_data: bool) -> Loop:
    """Return a loop over 8 batches. `with_data`: whether each of the first calls of progress() gets the iterator."""

    def run(pipe: Any) -> None:
        data, n_calls = pipe.fill_pipeline(range(8)), 0
        while True:
            has_data = with_data[n_calls] if n_calls < len(with_data) else True
            n_calls += 1
            try:
                pipe.progress(data if has_data else None)
            except StopIteration:
                if has_data:
                    return

    return run


def serial(pipe: Any) -> None:
    pipe.run_serial(range(8))


def on_ranks(engines: tuple[Any, Any], loops: tuple[Loop, Loop]) -> tuple[list[Any], list[str | None]]:
    """Return the order of the collectives, and the error, of each rank."""
    group = Group()
    orders: list[Any] = [[], []]
    errors: list[str | None] = [None, None]

    def run(rank: int) -> None:
        diary = Diary()
        pipe = engines[rank](collectives(diary), device="simulated", process_group=group)
        try:
            loops[rank](pipe)
        except PipelineError as error:
            errors[rank] = str(error)
        orders[rank] = [item for item in diary.order if item[0] != "m"]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return orders, errors


flow = partial(DataFlowPipeline, max_depth=3)
every_engine = pytest.mark.parametrize("engine", [SWPipeline, flow], ids=["clocked", "flow"])


@pytest.mark.parametrize(("engine", "pauses"), [(SWPipeline, 1), (SWPipeline, 2), (flow, 2), (flow, 3)])
def test_a_rank_that_pauses_alone_is_an_error_on_all_ranks(engine: Any, pauses: int) -> None:
    """Otherwise, its b of an iteration would be reduced with the other rank's a of a later iteration."""
    orders, errors = on_ranks((engine, engine), (loop(*[True, *[False] * pauses]), loop()))
    for error in errors:
        assert "the ranks do not have the same pause before the iteration" in str(error)
    common = min(map(len, orders))
    assert orders[0][:common] == orders[1][:common]


def test_a_pause_without_effect_on_the_order_is_no_error() -> None:
    """With data flow, an iteration after one pause still starts in its period.

    The clock would have submitted the others, too.
    """
    orders, errors = on_ranks((flow, flow), (loop(True, False), loop()))
    assert errors == [None, None]
    assert orders[0] == orders[1] and len(orders[0]) == 16


@every_engine
@pytest.mark.parametrize("pauses", [1, 2, 5])
def test_ranks_may_pause_together(engine: Any, pauses: int) -> None:
    paused = loop(*[True, *[False] * pauses])
    orders, errors = on_ranks((engine, engine), (paused, paused))
    assert errors == [None, None]
    assert orders[0] == orders[1] and len(orders[0]) == 16


def test_a_pause_until_nothing_is_in_flight_does_not_depend_on_the_depth() -> None:
    """Ranks may have different numbers of iterations in flight. The pause of the deeper rank counts more periods."""
    deeper = partial(DataFlowPipeline, max_depth=5)
    orders, errors = on_ranks((flow, deeper), (loop(True, True, *[False] * 9), loop(*[False] * 9)))
    assert errors == [None, None]
    assert orders[0] == orders[1] and len(orders[0]) == 16


def test_where_only_dependencies_give_an_order_a_pause_changes_none() -> None:
    free = partial(DataFlowPipeline, max_depth=3, order="dependencies")
    orders, errors = on_ranks((free, free), (loop(True, False), loop()))
    assert errors == [None, None]
    assert orders[0] == orders[1] and len(orders[0]) == 16


@every_engine
def test_a_rank_that_runs_serially_alone_is_an_error_on_all_ranks(engine: Any) -> None:
    for error in on_ranks((engine, engine), (serial, loop()))[1]:
        assert "the ranks do not have the same plan, order of submission" in str(error)
    orders, errors = on_ranks((engine, engine), (serial, serial))
    assert errors == [None, None] and orders[0] == orders[1]


def test_a_pause_until_the_last_collective_is_submitted_counts_as_any_longer_one() -> None:
    """Ranks of different depth may merge their last stages differently. Those stages have no collective."""
    shallow = partial(DataFlowPipeline, max_depth=2)
    orders, errors = on_ranks((shallow, flow), (loop(True, *[False] * 9), loop(*[False] * 9)))
    assert errors == [None, None]
    assert orders[0] == orders[1] and len(orders[0]) == 16


def test_ranks_agree_on_the_host_whatever_the_default_device() -> None:
    """An agreement on a GPU would make each iteration wait for the work of earlier ones."""
    devices: list[str] = []
    agreement = Agreement(SimpleNamespace(all_reduce=lambda answer: devices.append(answer.device.type)))
    agreement.begin("plan")
    with torch.device("meta"):
        assert agreement.least(2, 0, 0) == 2
    assert devices == ["cpu"]
