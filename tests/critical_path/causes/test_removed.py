"""Which of two changes is nested in another, by what they remove."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.critical_path.causes.removed import Removed

# name/use: so much in common of an inner change that removes 10,000 ns or 100 waits, and a little less
SIDES = {
    "nested_percent/time": ("ns", 9000, 8999),
    "nested_percent/waits": ("waits", 90, 89),
}
BOUNDARIES = SIDES


def by(factor: list[float], gone: list[bool], weight: list[int]) -> Removed:
    change: Any = SimpleNamespace(factor=np.array(factor), gone=np.array(gone))
    return Removed.by(change, np.array(weight))


@pytest.mark.parametrize(("what", "enough", "less"), SIDES.values(), ids=SIDES)
def test_a_change_is_nested_if_another_removes_nine_tenths_of_it(what: str, enough: int, less: int) -> None:
    for common, is_nested in ((enough, True), (less, False)):
        if what == "ns":
            inner = Removed(np.array([0, 3]), np.array([common, 10_000 - common]), np.zeros(2, dtype=bool))
            outer = Removed(np.array([0, 1]), np.array([10_000, 90_000]), np.zeros(2, dtype=bool))
        else:
            inner = Removed(np.arange(100), np.zeros(100, dtype=np.int64), np.ones(100, dtype=bool))
            outer = Removed(np.arange(common), np.zeros(common, dtype=np.int64), np.ones(common, dtype=bool))
        assert inner.is_within(outer) == is_nested
        assert inner.is_within(inner)


def test_the_outer_change_is_not_nested_in_the_inner_one() -> None:
    inner = by([1, 0, 1], [False] * 3, [100, 100, 100])
    outer = by([0, 0, 0], [False] * 3, [100, 100, 100])
    assert inner.is_within(outer) and not outer.is_within(inner)


def test_a_change_removes_a_share_of_an_edge_and_waits_and_nothing_of_what_gets_longer() -> None:
    removed = by([1, 0.25, 2, 1, 0], [False, False, False, True, True], [10, 200, 30, 0, -5])
    assert removed.edge.tolist() == [1, 3, 4]
    assert removed.ns.tolist() == [150, 0, 0] and removed.gone.tolist() == [False, True, True]
