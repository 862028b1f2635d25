"""Eleven programs with one planted cause each.

The planted cause comes first, and its predicted saving matches the difference to a second run without it. The twelfth
cause, a late rank, is tested in tests/fleet/path/test_capture_fixes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pipelines.faces.why import Why
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.effort import first_of

from .answered import answers_of_all

USUAL = CaptureSpec(ranks=1, steps=4, shape="planted", sync_each_step=False, collective_skew_ns=0)
# The plant, its cause, the capture's settings, and the difference in the second run: durations, or no plant.
PLANTS = (
    ("loader", "data_loading", {}, {}),
    ("synchronize", "synchronization", {"kernel_ns": 20_000}, {}),
    ("pageable_copy", "copies", {}, {}),
    ("launch_bound", "host_operators", {}, {"aten::*": 0}),
    ("slow_collective", "communication", {"ranks": 2, "collective_ns": 10_000_000}, {}),
    ("allocation", "allocation", {}, {}),
    ("recompilation", "compilation", {}, {}),
    ("garbage_collection", "garbage_collection", {}, {}),
    ("checkpoint", "checkpointing", {}, {}),
    ("preprocessing", "host_between_operators", {}, {}),
    ("compute_bound", "gpu_computing", {}, {"class:COMPUTATION": 0}),
)
QUICK = 5
"""Number of plants, the first of PLANTS, that are not slow."""
POINTS = 2
"""Tolerance of a saving, in percent of the window."""


Answered = dict[str, tuple[Capture, Why]]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Answered]:
    """Return a function that writes the quick or the slow captures.

    It returns them with the answer for rank 0 of each, and the models run once per group.
    """

    @cache
    def of(is_quick: bool) -> Answered:
        folder = tmp_path_factory.mktemp("planted")
        captures = {
            plant: write_capture(replace(USUAL, plant=plant, **like), folder / plant)
            for plant, _, like, _ in (PLANTS[:QUICK] if is_quick else PLANTS[QUICK:])
        }
        whys = answers_of_all(capture.paths[0] for capture in captures.values())
        return dict(zip(captures, zip(captures.values(), whys, strict=True), strict=True))

    return of


@pytest.mark.parametrize(
    ("plant", "cause", "like", "changed"), first_of(PLANTS, QUICK), ids=[plant for plant, *_ in PLANTS]
)
def test_the_planted_cause_is_first_and_saves_what_a_second_run_saves(
    plant: str,
    cause: str,
    like: dict,
    changed: dict,
    answered: Callable[[bool], Answered],
    tmp_path: Path,
) -> None:
    capture, why = answered(plant in {name for name, *_ in PLANTS[:QUICK]})[plant]
    without = replace(USUAL, **{**like, "plant": "none", "collective_ns": USUAL.collective_ns})
    again = capture.again(changed, tmp_path) if changed else write_capture(without, tmp_path)
    length, shorter = (run.ranks[0].truth.full.length_ns for run in (capture, again))
    first = why.causes[0]
    assert why.window["length_ns"] == length
    assert (first.kind["cause"], why.rows[0]["cause"]) == (cause, cause)
    assert first.share > 50
    assert first.saves is not None
    assert 100 * first.saves / length == pytest.approx(100 * (length - shorter) / length, abs=POINTS)
    answer = why.as_json()
    assert answer["causes"][0]["cause"] == cause
    assert sum(row["share_percent"] for row in answer["causes"]) == pytest.approx(100, abs=0.1)
    assert first.kind["phrase"] in why.sentence or cause == "gpu_computing"
