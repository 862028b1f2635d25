"""Numbers next to charts and tables of ranks: long times on a scale, and lists of steps."""

from __future__ import annotations

import pytest

from pipelines.faces.cli.fleet.compared_rows import _numbers
from pipelines.fleet.heat_map import METRICS, rank_step_heat_map


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([3], "3"),
        ([3, 4], "3 and 4"),
        ([3, 4, 5], "3 to 5"),
        ([1, 3, 5], "1, 3 and 5"),
        ([1, 2, 3, 4, 5, 7], "1, 2, 3, 4, 5 and 7"),
        ([1, 2, 3, 4, 5, 7, 9], "1, 2, 3, 4, 5 and 2 more"),
    ],
)
def test_steps_are_a_range_only_without_a_gap(steps: list[int], text: str) -> None:
    assert _numbers(steps) == text


def test_a_scale_of_seconds_has_all_digits_of_its_ms() -> None:
    times = dict.fromkeys(METRICS)
    cells = [{**times, "rank": rank, "step": 1, "wait_ns": ns} for rank, ns in ((0, 0), (1, 1_534_000_000))]
    assert ">1,534 ms<" in rank_step_heat_map("job", cells, "wait_ns")
