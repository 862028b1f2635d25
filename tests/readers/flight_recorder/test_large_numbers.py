"""Numbers in names and in dumps that are too large for a rank, a counter or a version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pipelines.readers.flight_recorder.groups import DEFAULT, _inferred
from pipelines.readers.nccl_inspector.records import _number


def test_a_time_in_a_file_s_name_is_no_rank() -> None:
    """A group without a list of ranks has all ranks up to the largest, unless so many would fill the memory."""
    dumps: Any = {rank: SimpleNamespace(groups={}) for rank in (0, 1_732_190_400)}
    group = _inferred("0", DEFAULT, {rank: [] for rank in dumps}, dumps, {})
    assert group.ranks == (0, 1_732_190_400) and group.is_inferred
    few: Any = {rank: SimpleNamespace(groups={}) for rank in (0, 3)}
    assert _inferred("0", DEFAULT, {rank: [] for rank in few}, few, {}).ranks == (0, 1, 2, 3)


def test_a_number_that_no_double_holds_is_an_error_of_its_line() -> None:
    assert _number({"x": 5}, "x") == 5.0
    for value in (10**400, float("inf"), float("nan"), -1, True, "1"):
        try:
            _number({"x": value}, "x")
        except ValueError as error:
            assert "x is" in str(error)
        else:
            raise AssertionError(value)
