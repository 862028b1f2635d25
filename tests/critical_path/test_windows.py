"""Windows: which stretch an annotation names, in either profile, and which windows the lake holds by itself."""

from __future__ import annotations

import duckdb
import pytest

from pipelines.critical_path.windows import WindowRequest, usual_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect, op, x


def step(number: int, ts: float) -> dict:
    return x("user_annotation", f"ProfilerStep#{number}", ts, 10)


# Steps 5, 50, 51 and 6, and an operator in each.
STEPS = [step(number, 20 * i) for i, number in enumerate((5, 50, 51, 6))]
TRACE = [*STEPS, *(op("aten::add", 20 * i + 1, 5) for i in range(4))]


def bounds(trace: list[dict], *requests: WindowRequest) -> list[tuple]:
    con, trace_id = connect(trace)
    con.close()
    named = [WindowRequest(trace_id, r.window_id, r.profile, r.annotation, r.first, r.last) for r in requests]
    con, _ = connect(trace, *named)
    with con:
        run_models(con, load_catalog(), ["critical_path_windows"])
        return con.execute("SELECT window_id, start_ns, end_ns FROM critical_path_windows ORDER BY ALL").fetchall()


@pytest.mark.parametrize(
    ("profile", "annotation", "first", "last", "expected"),
    [
        ("default", "ProfilerStep#5", 0, 0, (0, 10_000)),
        ("default", "ProfilerStep#5", 1, 1, None),  # ProfilerStep#50 is another name
        ("hta", "ProfilerStep#5", 1, 1, (20_000, 30_000)),  # HTA: the second row whose name holds it
        ("default", "ProfilerStep", 1, 2, (20_000, 50_000)),  # any step, counted
        ("default", "ProfilerStep#51", 0, 0, (40_000, 50_000)),
        ("default", "no such", 0, 0, None),
    ],
)
def test_instances(profile: str, annotation: str, first: int, last: int, expected: tuple | None) -> None:
    found = bounds(TRACE, WindowRequest("", "w", profile, annotation, first, last))
    assert found == ([("w", *expected)] if expected else [])


def test_instances_are_steps_and_not_their_gpu_copies() -> None:
    copies = [x("gpu_user_annotation", f"ProfilerStep#{n}", 20 * i + 2, 9, 7, 0) for i, n in enumerate((5, 50, 51, 6))]
    assert bounds([*copies, *TRACE], WindowRequest("", "w", "default", "ProfilerStep", 1, 1)) == [("w", 20_000, 30_000)]


def test_the_lake_holds_the_whole_trace_and_every_step() -> None:
    con, trace_id = connect(TRACE)
    with con:
        windows = usual_windows(con, [trace_id])
    assert [w.window_id for w in windows] == ["full", *(f"ProfilerStep#{n}" for n in (5, 50, 51, 6))]
    assert bounds(TRACE, *windows) == [
        ("ProfilerStep#5", 0, 10_000),
        ("ProfilerStep#50", 20_000, 30_000),
        ("ProfilerStep#51", 40_000, 50_000),
        ("ProfilerStep#6", 60_000, 70_000),
        ("full", 0, 70_000),
    ]


def test_no_trace_no_window() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE events (trace_id VARCHAR, name VARCHAR, cat VARCHAR, ts_ns BIGINT, dur_ns BIGINT)")
        assert usual_windows(con, []) == []
