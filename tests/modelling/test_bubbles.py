"""Bubbles of schedules: the formulas, compared with recorded simulations and one written here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.modelling.bubbles import Stage, bubble


def test_formulas_are_what_simulations_gave(shared: Path) -> None:
    cases = json.loads((shared / "golden" / "modelling" / "bubbles.json").read_text())
    assert cases
    for case in cases:
        schedule = case["schedule"].split(" ")[0]
        stage = Stage(case["F"], case["B_full"], case["B_full"] / 2)
        assert bubble(schedule, case["p"], case["m"], stage).idle == case["bubble_sim"] == case["bubble_formula"]


def simulated_gpipe(p: int, m: int, forward: int, backward: int) -> int:
    """Return the time at which the last rank ends.

    All forwards come first, then all backwards, each as soon as its input exists.
    """
    there = [0] * m
    ends = []
    for _ in range(p):
        at = 0
        for i in range(m):
            at = there[i] = max(at, there[i]) + forward
        ends.append(at)
    for rank in reversed(range(p)):
        at = ends[rank]
        for i in range(m):
            at = there[i] = max(at, there[i]) + backward
        ends[rank] = at
    return max(ends)


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 9), st.integers(1, 9))
def test_gpipe_idles_as_long_as_a_run_of_it(p: int, m: int, forward: int, backward: int) -> None:
    gpipe = bubble("GPipe", p, m, Stage(forward, backward))
    wall = simulated_gpipe(p, m, forward, backward)
    assert gpipe.idle == wall - m * (forward + backward)
    assert gpipe.ratio == pytest.approx((p - 1) / m)
    assert gpipe.share == pytest.approx(gpipe.idle / wall) == pytest.approx((p - 1) / (m + p - 1))


def test_the_formulas_without_a_simulation() -> None:
    """The sources print: interleaved (p - 1)(F + B) / v, and DualPipe (p / 2 - 1)(F&B + B - 3 W)."""
    assert bubble("interleaved", 4, 8, Stage(1, 2), chunks=3).idle == 3
    assert bubble("interleaved", 4, 8, Stage(1, 2), chunks=3).ratio == pytest.approx(3 / (3 * 8))
    assert bubble("DualPipe", 8, 20, Stage(1, 2, 1, both=2.5)).idle == pytest.approx(3 * (2.5 + 2 - 3))
    assert bubble("DualPipe", 8, 20, Stage(1, 2, 1)).idle == pytest.approx(3 * (3 + 2 - 3))


@pytest.mark.parametrize(
    ("schedule", "p", "m", "stage"),
    [("PipeDream", 2, 2, Stage(1, 1)), ("GPipe", 0, 2, Stage(1, 1)), ("1F1B", 2, 0, Stage(1, 1)),
     ("ZB-H1", 2, 2, Stage(1, 1, 2)), ("DualPipe", 3, 8, Stage(1, 2, 1))],
)  # fmt: skip
def test_what_has_no_bubble_is_refused(schedule: str, p: int, m: int, stage: Stage) -> None:
    with pytest.raises(ValueError, match=r"formula|at least 1|weights' part|even"):
        bubble(schedule, p, m, stage)
