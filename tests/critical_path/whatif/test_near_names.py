"""The error for a name that does not exist in the window."""

from __future__ import annotations

import pytest

from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.near_names import near_names
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from tests.harness import call, kernel, op

from .windows import opened

PROGRAM = [
    op("aten::mm", 0, 60),
    call("cudaLaunchKernel", 10, 5, 1),
    kernel("ampere_sgemm", 40, 400, 1),
    op("aten::item", 70, 400),
    op("aten::_local_scalar_dense", 72, 396),
    call("cudaDeviceSynchronize", 80, 380, 2),
]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("item", ["aten::item", "aten::item_each"]),
        ("*ITEM*", ["aten::item", "aten::item_each"]),
        ("aten::itme", ["aten::item"]),
        ("itme", ["aten::item"]),
        ("convolution", []),
        ("*", []),
    ],
)
def test_names_that_hold_it_come_before_those_spelled_like_it(what: str, names: list[str]) -> None:
    assert near_names(what, ["aten::item_each", "aten::item", "void gemm<4>(float)"]) == names


@pytest.mark.slow  # 2 s; test_compare.py checks the listed targets, and tests above the suggested names
def test_what_matches_nothing_is_answered_with_names_like_it() -> None:
    with opened(PROGRAM) as (_, window):
        for target, meant in (
            ("item", "; did you mean aten::item? There are: class:"),
            ("MM", "; did you mean aten::mm, ampere_sgemm? There are: "),
            ("kernel:mm", "; did you mean kernel:ampere_sgemm? There are: "),
            ("self:mm", "; did you mean self:aten::mm? There are: "),
            ("gpu:mm", "; did you mean gpu:aten::mm? There are: "),
            ("gpu:synchronize", ". There are: "),  # the name exists, but launches nothing
            ("wait:item", "; did you mean wait:aten::item? There are: "),
            ("wait:scalar", "; did you mean wait:aten::_local_scalar_dense? There are: "),
            ("wait:aten::mm", ". There are: "),  # the name exists, but does not wait
            ("stream:77", ". There are: "),
        ):
            with pytest.raises(NothingMatches) as raised:
                next(what_if(window, [Scenario(((target, 0.0),))]))
            assert str(raised.value).startswith(f"{target!r} matches nothing in this window{meant}")
