"""The steps and ranks of two sides that are compared with each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest

from pipelines.fleet.trends.compared_windows import choose, traces_of
from pipelines.fleet.trends.comparison import CompareError, Trace, Window

WARM = 50
"""Steps longer than this (us) are warm-up in these tests.

tests/sql/gpu/test_step_lengths.py tests how step_lengths decides.
"""


def steps_of(*lengths: float, first: int = 0) -> tuple[Window, ...]:
    return tuple(
        Window("t", first + n, 0, 0, round(us * 1e3), 0, 0, warm_up_times=us / 9 if us > WARM else None)
        for n, us in enumerate(lengths)
    )


def trace(*lengths: float, first: int = 0, rank: int | None = None, name: str = "x") -> Trace:
    windows = tuple(
        replace(window, trace_id=f"{name}{rank}")
        for window in (*steps_of(*lengths, first=first), Window("", None, 0, 0, 9, 0, 0))
    )
    return Trace(f"{name}{rank}", f"/{name}.json", f"{name}.json", rank, None, False, True, windows)


def numbers(control: Trace, test: Trace, steps: Any = None) -> tuple[list[tuple], list[str]]:
    chosen = choose([control], [test], steps)
    return [(pair.control.step, pair.test.step) for pair in chosen.pairs], chosen.left_out


def test_all_steps_that_both_sides_have() -> None:
    assert numbers(trace(9, 9, 9, first=4), trace(9, 9, 9, first=5)) == (
        [(5, 5), (6, 6)],
        ["control: step 4 without counterpart", "test: step 7 without counterpart"],
    )
    # Steps that are warm-up on both sides are left out. A step that is slightly slower on one side only is a
    # difference.
    slow_start = trace(70, 9, 9, first=4)
    assert numbers(slow_start, trace(60, 9, 9, first=4)) == ([(5, 5), (6, 6)], ["both: step 4 left out as warm-up"])
    every = [(4, 4), (5, 5), (6, 6)]
    unsure = "step 4 compared, though it may be warm-up"
    assert numbers(slow_start, trace(9, 9, 9, first=4)) == (every, [f"control: {unsure}"])
    assert numbers(trace(9, 9, 9, first=4), slow_start) == (every, [f"test: {unsure}"])
    assert numbers(trace(70, 60, 9, first=4), slow_start) == (
        [(5, 5), (6, 6)],
        ["both: step 4 left out as warm-up", "control: step 5 compared, though it may be warm-up"],
    )
    assert numbers(trace(9, 9, 9, first=4), trace(73, 9, 9, first=4))[1] == ["both: step 4 left out as warm-up"]
    # With other numbers the first steady steps of both sides are paired.
    assert numbers(slow_start, trace(9, 9, 9, first=20)) == (
        [(5, 20), (6, 21)],
        ["control: step 4 left out as warm-up", "test: step 22 without counterpart"],
    )
    assert numbers(slow_start, trace(60, first=4)) == (
        [(4, 4)],
        ["both: step 4 compared, though it may be warm-up", "control: steps 5, 6 without counterpart"],
    )
    assert numbers(slow_start, trace()) == ([(None, None)], ["test has no steps: whole traces are compared"])
    assert numbers(trace(), trace()) == ([(None, None)], [])


def test_few_numbers_in_common_are_chance() -> None:
    """Steps are not paired by number if few numbers are common to both sides.

    One program ran twice and skipped another number of steps. A last step must not be compared with the other side's
    warm-up.
    """
    warm = (60, 9, 9, 9, 9, 9, 9, 9)
    assert numbers(trace(*warm), trace(*warm, first=7)) == (
        [(step, step + 7) for step in range(1, 8)],
        ["control: step 0 left out as warm-up", "test: step 7 left out as warm-up"],
    )
    # Half of the shorter side is enough.
    assert numbers(trace(9, 9, 9, 9), trace(9, 9, first=3))[0] == [(3, 3)]
    assert numbers(trace(9, 9, 9, 9), trace(9, 9, 9, first=3))[0] == [(0, 3), (1, 4), (2, 5)]


def test_one_step_where_it_is_asked_for() -> None:
    control, test = trace(90, 9, 9, first=4), trace(9, 9, 9, first=5)
    assert numbers(control, test, 6) == ([(6, 6)], [])
    assert numbers(control, test, "first") == ([(4, 5)], [])
    assert numbers(control, test, "all") == ([(None, None)], [])
    assert numbers(control, test, (4, 7)) == ([(4, 7)], [])
    assert numbers(control, test, (6, "all")) == ([(6, None)], [])
    assert numbers(control, trace(), "first") == ([(None, None)], ["test has no steps: whole traces are compared"])
    with pytest.raises(CompareError, match=r"x.json \(trace xNone\) has no step 4; it has 5, 6, 7"):
        numbers(control, test, 4)


def places(control: list[Trace], test: list[Trace]) -> tuple[list[tuple], list[str]]:
    chosen = choose(control, test)
    return [(pair.where, pair.control.trace_id, pair.test.trace_id) for pair in chosen.pairs], chosen.left_out


def of_ranks(control: list[Trace], test: list[Trace], steps: Any = None) -> tuple[list[tuple], list[str]]:
    sides = [[replace(unranked, rank=rank) for rank, unranked in enumerate(side)] for side in (control, test)]
    chosen = choose(sides[0], sides[1], steps)
    return [(pair.where, pair.control.step, pair.test.step) for pair in chosen.pairs], chosen.left_out


@pytest.mark.parametrize("steps", [None, "first"])
def test_ranks_without_steps_are_left_out_where_others_have_steps(steps: str | None) -> None:
    with_steps, without = trace(9, first=1), trace()
    every = [with_steps] * 3
    assert of_ranks([without, with_steps, with_steps], every, steps) == (
        [("rank 1", 1, 1), ("rank 2", 1, 1)],
        ["rank 0 left out: no steps in control"],
    )
    assert of_ranks([without, with_steps, without], [without, with_steps, with_steps], steps) == (
        [("rank 1", 1, 1)],
        ["rank 0 left out: no steps in control and test", "rank 2 left out: no steps in control"],
    )
    whole = [("rank 0", None, None), ("rank 1", None, None)]
    assert of_ranks([without] * 2, every[:2], steps) == (whole, ["control has no steps: whole traces are compared"])
    assert of_ranks([without] * 2, [without] * 2, steps) == (whole, [])
    assert of_ranks([without, with_steps], every[:2], "all") == (whole, [])


def test_a_step_counts_where_all_ranks_have_it() -> None:
    usual, warm = trace(9, 9, 9), trace(60, 9, 9)
    elsewhere = "left out, because not compared on all ranks"
    every = [(where, step, step) for where in ("rank 0", "rank 1") for step in (1, 2)]
    assert of_ranks([usual, warm], [usual, warm]) == (every, ["both: step 0 left out as warm-up"])
    assert of_ranks([usual, usual], [usual, trace(9, 9, first=1)]) == (
        every,
        ["control: step 0 without counterpart", f"both: step 0 {elsewhere}"],
    )
    # The note about possible warm-up is not made for steps that are left out.
    assert of_ranks([warm, warm], [usual, warm]) == (every, ["both: step 0 left out as warm-up"])
    # Other numbers on both sides.
    later = trace(9, 9, 9, first=20)
    assert of_ranks([usual, trace(9, 9)], [later, later]) == (
        [(where, step, step + 20) for where in ("rank 0", "rank 1") for step in (0, 1)],
        ["test: step 22 without counterpart", f"control: step 2 {elsewhere}", f"test: step 22 {elsewhere}"],
    )
    assert of_ranks([usual, warm], [later, later]) == (
        [(where, step, step + 19) for where in ("rank 0", "rank 1") for step in (1, 2)],
        ["control: step 0 left out as warm-up", "test: step 22 without counterpart"],
    )
    # No step is on all ranks.
    far = trace(9, 9, first=30)
    assert of_ranks([usual, far], [usual, far]) == (
        [("rank 0", 0, 0), ("rank 0", 1, 1), ("rank 0", 2, 2), ("rank 1", 30, 30), ("rank 1", 31, 31)],
        ["no step is compared on all ranks: those of each rank are"],
    )


def test_rank_by_rank() -> None:
    a = [trace(9, rank=rank, name="a") for rank in (0, 1, 2)]
    b = [trace(9, rank=rank, name="b") for rank in (1, 2, 3)]
    assert places(a, b) == (
        [("rank 1", "a1", "b1"), ("rank 2", "a2", "b2")],
        ["control: rank 0 without counterpart", "test: rank 3 without counterpart"],
    )
    assert places(a[1:2], b) == ([("", "a1", "b1")], ["test: rank 2, rank 3 without counterpart"])
    # Without common or known ranks, the ranks are paired in their order.
    assert places(a[:1], b)[0] == [("", "a0", "b1")]
    unknown = [replace(ranked, rank=None, file=f"process {n}") for n, ranked in enumerate(a)]
    assert places(unknown, b)[0] == [
        *(
            ("process 0 and rank 1", "a0", "b1"),
            ("process 1 and rank 2", "a1", "b2"),
            ("process 2 and rank 3", "a2", "b3"),
        ),
    ]
    assert places(unknown, unknown)[0][0][0] == "process 0"


def test_the_traces_of_an_id() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE traces AS SELECT * FROM (VALUES ('1a'), ('1b'), ('2c')) AS t (trace_id)")
    con.execute(
        "CREATE TABLE capture_ranks AS SELECT 'ca' AS capture_id, row_number() OVER () - 1 AS rank, trace_id, "
        "CASE WHEN trace_id = '2c' THEN 'a copy' END AS left_out_reason FROM traces"
    )
    assert traces_of(con, "ca") == ["1a", "1b"]
    assert (traces_of(con, "ca", "first"), traces_of(con, "ca", 1), traces_of(con, "2")) == (["1a"], ["1b"], ["2c"])
    for name, rank, message in (
        ("ca", 2, "no rank 2; it has 0, 1"),
        ("9", "all", "no capture"),
        ("1", "all", "prefix of 2"),
    ):
        with pytest.raises(CompareError, match=message):
            traces_of(con, name, rank)
