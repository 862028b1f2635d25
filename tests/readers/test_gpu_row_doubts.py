"""GPU rows that cannot be real: a profile written twice, zero-length work, overlaps on a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.readers.inputs.single_trace import load_trace
from tests.harness import call, kernel, op

DOUBTS = ("repeated_gpu_rows", "zero_length_work", "overlapping_work")


def doubts(events: list[dict[str, Any]], folder: Path) -> dict[str, tuple[int, str, str]]:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    con = duckdb.connect()
    load_trace(con, path)
    rows = con.execute("SELECT check_name, n, severity, detail FROM findings").fetchall()
    return {check: (n, severity, detail) for check, n, severity, detail in rows if check in DOUBTS}


def kernels(n: int, length: float = 10, gap: float = 10) -> list[dict[str, Any]]:
    return [kernel("k", 100 + i * (length + gap), length, i + 1) for i in range(n)]


def launches(n: int) -> list[dict[str, Any]]:
    return [op("aten::mm", 0, 50), *(call("cudaLaunchKernel", 0.1 * i, 0.1, i + 1) for i in range(n))]


OVERLAPPING = [kernel("k", 100, 80, 1), kernel("k", 175, 20, 2)]  # 5 of 100 us
BOUNDARIES = {
    "repeated_rows_percent": (
        "repeated_gpu_rows",
        [*kernels(99), kernels(99)[0]],
        [*kernels(100), kernels(100)[0]],
    ),
    "without_length_percent": (
        "zero_length_work",
        [*kernels(9), kernel("k", 1000, 0, 10)],
        [*kernels(10), kernel("k", 1000, 0, 11)],
    ),
    "overlap_percent": ("overlapping_work", OVERLAPPING, [kernel("k", 100, 80.1, 1), kernel("k", 175.1, 20, 2)]),
}


@pytest.mark.parametrize("threshold", BOUNDARIES)
def test_a_trace_is_doubted_from_the_threshold_on(threshold: str, tmp_path: Path) -> None:
    check, doubtful, fine = BOUNDARIES[threshold]
    assert set(doubts(doubtful, tmp_path)) == {check}
    assert doubts(fine, tmp_path) == {}


def test_a_profile_that_is_twice_in_the_file(tmp_path: Path) -> None:
    events = [*launches(20), *kernels(20)]
    n, severity, detail = doubts([*events, *events], tmp_path)["repeated_gpu_rows"]
    assert (n, severity) == (20, "error")
    assert detail == (
        "20 of 40 rows of GPU work repeat another one (same stream, start, length and name): the file has a profile more "
        "than once, and sums of GPU time count it as often"
    )


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"ts": 101}, {"dur": 9}, {"stream": 8}, {"device": 1}, {"correlation": 99}],
    ids=lambda change: next(iter(change)),
)
def test_rows_that_differ_do_not_repeat_each_other(change: dict[str, Any], tmp_path: Path) -> None:
    first = kernels(1)[0]
    arguments = {key: change[key] for key in change if key in ("stream", "device", "correlation")}
    columns = {key: change[key] for key in change if key not in arguments}
    other = {**first, **columns, "args": {**first["args"], **arguments}}
    if "stream" in change or "device" in change:  # the row of the stream in the viewer
        other["tid"] = 8
    assert "repeated_gpu_rows" not in doubts([first, other], tmp_path)


def test_overlaps_count_on_a_stream_only_and_against_every_earlier_row(tmp_path: Path) -> None:
    other_stream = {**OVERLAPPING[1], "tid": 8, "args": {**OVERLAPPING[1]["args"], "stream": 8}}
    assert doubts([OVERLAPPING[0], other_stream], tmp_path) == {}
    within = [kernel("long", 0, 100, 1), kernel("short", 10, 5, 2), kernel("late", 60, 40, 3)]
    n, severity, detail = doubts(within, tmp_path)["overlapping_work"]
    assert (n, severity) == (2, "warning")
    assert detail == (
        "GPU work overlaps on its own stream for 45.0 us of 145.0 us, which a stream does not do: sums of GPU time count that twice"
    )
