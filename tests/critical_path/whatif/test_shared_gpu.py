"""The caveat overlapping_streams on both sides of its threshold, and without overlap."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from tests.harness import launched, op

from .windows import MADE, window_of


def overlapping_products(overlap: float, stream: int = 20, device: int = 0) -> list[dict[str, Any]]:
    """Return two matrix products on different streams in a window of 1000 us.

    The second product begins `overlap` us before the end of the first one, which is on stream 7.
    """
    first = [op("aten::mm", 0, 10), *launched(2, (20, 500), 1)]
    starts = 520 - overlap
    return [
        *first,
        op("aten::bmm", 10, 10),
        *launched(12, (starts, 1000 - starts), 2, "other", stream=stream, device=device),
    ]


SIDES = {"streams_overlap_percent": (10, 9.999)}
"""Overlaps in us in a window of 1000 us, with the caveat and without it."""
BOUNDARIES = (SIDES,)
_ENOUGH, _LESS = SIDES["streams_overlap_percent"]
MADE |= {
    "streams overlap": overlapping_products(_ENOUGH),
    "streams overlap for less": overlapping_products(_LESS),
    "one stream overlaps": overlapping_products(100, stream=7),
    "devices overlap": overlapping_products(100, device=1),
}


def caveats(trace: str, target: str, factor: float = 0.5) -> list[dict[str, Any]]:
    (answer,) = what_if(window_of(trace), [Scenario(((target, factor),))])
    return [caveat for caveat in answer.caveats if caveat["caveat"] == "overlapping_streams"]


def test_streams_that_overlap_for_a_percent_are_told_beside_the_number() -> None:
    (caveat,) = caveats("streams overlap", "kernel:gemm")
    assert (caveat["severity"], caveat["time_us"]) == ("info", _ENOUGH)
    assert caveat["detail"].startswith("GPU work of several streams overlaps for 0.01 ms (1.0 % of the window): ")
    assert caveats("streams overlap", "stream:20", 2.0) == caveats("streams overlap", "aten::mm", 0.0) == [caveat]


def test_what_changes_no_gpu_work_has_no_such_caveat() -> None:
    assert not caveats("streams overlap", "cpu") and not caveats("streams overlap", "launch_overhead")


@pytest.mark.parametrize("trace", ["streams overlap for less", "one stream overlaps", "devices overlap"])
def test_where_streams_of_a_device_hardly_overlap_there_is_no_caveat(trace: str) -> None:
    assert not caveats(trace, "kernel:gemm")
