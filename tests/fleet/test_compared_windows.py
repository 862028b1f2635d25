"""Which steps and ranks of two sides are compared with each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest

from pipelines.fleet.trends.compared_windows import choose, traces_of
from pipelines.fleet.trends.comparison import CompareError, Trace, Window

WARM = 50
"""Longer steps (us) are warm-up here; which are is told by step_lengths (tests/sql/gpu/test_step_lengths.py)."""


def steps_of(*lengths: float, first: int = 0) -> tuple[Window, ...]:
    return tuple(
        Window("t", first + n, 0, 0, round(us * 1e3), 0, 0, warm_up_times=us / 9 if us > WARM else None)
        for n, us in enumerate(lengths)
    )


def trace(*lengths: float, first: int = 0, rank: int | None = None, name: str = "x") -> Trace:
    windows = tuple(
        replace(one, trace_id=f"{name}{rank}")
        for one in (*steps_of(*lengths, first=first), Window("", None, 0, 0, 9, 0, 0))
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
    # What is warm-up on both sides is left out; what is a little slower on one side alone is a difference.
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
    # Other numbers: the first steady one with the first steady one.
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


def test_one_step_where_it_is_asked_for() -> None:
    one, other = trace(90, 9, 9, first=4), trace(9, 9, 9, first=5)
    assert numbers(one, other, 6) == ([(6, 6)], [])
    assert numbers(one, other, "first") == ([(4, 5)], [])
    assert numbers(one, other, "all") == ([(None, None)], [])
    assert numbers(one, other, (4, 7)) == ([(4, 7)], [])
    assert numbers(one, other, (6, "all")) == ([(6, None)], [])
    assert numbers(one, trace(), "first") == ([(None, None)], ["test has no steps: whole traces are compared"])
    with pytest.raises(CompareError, match=r"x.json \(trace xNone\) has no step 4; it has 5, 6, 7"):
        numbers(one, other, 4)


def places(control: list[Trace], test: list[Trace]) -> tuple[list[tuple], list[str]]:
    chosen = choose(control, test)
    return [(pair.where, pair.control.trace_id, pair.test.trace_id) for pair in chosen.pairs], chosen.left_out


def test_rank_by_rank() -> None:
    a = [trace(9, rank=rank, name="a") for rank in (0, 1, 2)]
    b = [trace(9, rank=rank, name="b") for rank in (1, 2, 3)]
    assert places(a, b) == (
        [("rank 1", "a1", "b1"), ("rank 2", "a2", "b2")],
        ["control: rank 0 without counterpart", "test: rank 3 without counterpart"],
    )
    assert places(a[1:2], b) == ([("", "a1", "b1")], ["test: rank 2, rank 3 without counterpart"])
    # No rank in common, or none known: in their order.
    assert places(a[:1], b)[0] == [("", "a0", "b1")]
    unknown = [replace(one, rank=None, file=f"process {n}") for n, one in enumerate(a)]
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
    for name, rank, told in (
        ("ca", 2, "no rank 2; it has 0, 1"),
        ("9", "all", "no capture"),
        ("1", "all", "prefix of 2"),
    ):
        with pytest.raises(CompareError, match=told):
            traces_of(con, name, rank)
