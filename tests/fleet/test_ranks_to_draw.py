"""The ranks of a large capture that charts show: the worst, and the median."""

from __future__ import annotations

import pytest

from pipelines.fleet.collectives.lanes import KINDS
from pipelines.fleet.stragglers import worst_and_median


@pytest.mark.parametrize(("n", "most"), [(65, 64), (100, 64), (125, 64), (126, 64), (3, 1), (3, 2), (64, 64)])
def test_as_many_ranks_as_asked_for_and_none_twice(n: int, most: int) -> None:
    ranks = worst_and_median(range(n), most)
    assert len(ranks) == len(set(ranks)) == min(n, most)
    assert n // 2 in ranks
    assert most == 1 or set(range(min(n, most) - 1)) <= set(ranks)


def test_every_kind_of_collective_has_a_number() -> None:
    assert {"gather", "scatter", "other"} <= set(KINDS) and len(set(KINDS)) == len(KINDS) < 128
