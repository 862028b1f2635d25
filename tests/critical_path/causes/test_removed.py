"""The rule for when a change is nested in another, based on the time that each removes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.critical_path.causes.removed import Removed

# name/use: the overlap in ns that nests an inner change of 10,000 ns, and an overlap just below it
SIDES = {
    "nested_percent/time": ("edge", 9000, 8999),
    "nested_percent/waits": ("call", 9000, 8999),
}
BOUNDARIES = SIDES


def removing(what: str, ns: dict[int, int]) -> Removed:
    """Return a change that removes time of edges or waits of calls, in ns by edge or call."""
    nothing, keys = np.zeros(0, dtype=np.int64), np.array([*ns])
    times = np.array([*ns.values()])
    return Removed(keys, times, nothing, nothing) if what == "edge" else Removed(nothing, nothing, keys, times)


def by(factor: list[float], gone: list[bool], weight: list[int], dst: list[int], dst_ns: list[int]) -> Removed:
    change: Any = SimpleNamespace(factor=np.array(factor), gone=np.array(gone))
    graph: Any = SimpleNamespace(weight=np.array(weight), dst=np.array(dst))
    return Removed.by(change, graph, np.array(dst_ns))


@pytest.mark.parametrize(("what", "enough", "less"), SIDES.values(), ids=SIDES)
def test_a_change_is_nested_if_another_removes_nine_tenths_of_it(what: str, enough: int, less: int) -> None:
    outer = removing(what, {0: 10_000, 1: 90_000})
    for common, is_nested in ((enough, True), (less, False)):
        inner = removing(what, {0: common, 3: 10_000 - common})
        assert inner.is_within(outer) == is_nested
        assert inner.is_within(inner) and not outer.is_within(inner)


def test_waits_count_by_their_time_not_by_their_number() -> None:
    """The changes remove nine short waits and a long wait. First they share the short waits, then only the long one."""
    short, long = dict.fromkeys(range(9), 10), {20: 900}
    log, item = removing("call", short | long), removing("call", short | {30: 900})
    assert not log.is_within(item) and not item.is_within(log)
    item = removing("call", {number + 40: 10 for number in short} | long)
    assert log.is_same(item)


def test_changes_are_the_same_if_each_is_nested_in_the_other() -> None:
    whole, most, half = (removing("edge", {0: 900, **more}) for more in ({1: 100}, {}, {1: 900}))
    assert whole.is_same(most) and most.is_same(whole)
    assert most.is_within(half) and not most.is_same(half)


def test_a_change_removes_a_share_of_an_edge_and_each_calls_waits_once_and_nothing_of_what_gets_longer() -> None:
    """The call at node 9 waits for two streams."""
    gone = [False, False, False, True, True, True]
    removed = by([1, 0.25, 2, 1, 1, 0], gone, [10, 200, 30, 0, 0, -5], [2, 3, 4, 9, 9, 7], [0, 0, 0, 60, 60, 40])
    assert (removed.edge.tolist(), removed.ns.tolist()) == ([1, 5], [150, 0])
    assert (removed.call.tolist(), removed.waited.tolist()) == ([7, 9], [40, 60])
    assert removed.total_ns == 250
