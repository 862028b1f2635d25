"""The sentences about what would help."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.faces.what_helps import change_of, same_stretch, saving_of

LONG = "void cutlass::Kernel2<" + "x" * 100 + ">"


def row(change: str, name: str = "", same: str | None = None, **more: Any) -> dict[str, Any]:
    return {"change": change, "name": name, "same_stretch_as": same, "is_bound": False, **more}


def test_of_two_ways_out_of_a_stretch_the_smaller_names_the_larger_with_a_short_name() -> None:
    larger, other = row(f"scale {LONG} down", LONG), row("launch a graph")
    rows = [other, larger]
    said = same_stretch(row("wait less", same=larger["change"]), rows)
    assert said == f"an alternative to this, savings do not add up: {change_of(larger)}"
    assert LONG not in said and "launch a graph" not in said


def test_of_a_wait_that_takes_turns_with_the_host_it_says_so() -> None:
    assert same_stretch(row("wait less", same="host between operators"), [row("launch a graph")]) == (
        "host and GPU take turns: less of host between operators saves the same time"
    )
    assert same_stretch(row("wait less"), [row("launch a graph")]) == ""


@pytest.mark.parametrize(("steps", "bound", "said"), [(1, False, "1.00 ms"), (2, True, "at most 500.0 us a step")])
def test_a_bound_says_that_it_is_one(steps: int, bound: bool, said: str) -> None:
    assert saving_of(row("x", saves_ns=1_000_000) | {"is_bound": bound}, steps) == said
