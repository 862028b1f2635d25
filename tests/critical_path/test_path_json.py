"""`critical-path --json` is written in parts, which together equal the answer as `json.dumps` writes it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.answer import path_json
from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.models.catalog import load_catalog
from tests.effort import examples, first_of
from tests.harness import call, connect, kernel, op
from tests.nasty import NASTY

_TEXTS = [*NASTY, 'a "quoted" \\ name', "\x7f\x1b[31m\n", "naïve 🚀", ""]


def trace(n: int) -> list[dict[str, Any]]:
    """Return operators with names of all kinds, each with a kernel, and times with and without a fraction."""
    rng = random.Random(n)
    events: list[dict[str, Any]] = []
    for i in range(n):
        name, at = _TEXTS[i % len(_TEXTS)], 100.0 * i
        dur = rng.choice([80, 80.001, 33.333])
        events += [op(name, at, dur), call("cudaLaunchKernel", at + 10, 5, i + 1)]
        events.append(kernel(f"k {name}", at + 30 + rng.random(), 41.005, i + 1))
    return events


@pytest.mark.parametrize(
    ("rows", "profile"),
    first_of([(1, "hta"), (3, "default"), (1 << 13, "default")], 1),
)
def test_the_parts_are_the_answer(rows: int, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_json, "_ROWS", rows)
    con, trace_id = connect(trace(2 * len(_TEXTS)))
    request, catalog = WindowRequest(trace_id, profile=profile), load_catalog()
    whole = critical_path(con, catalog, request)
    con, _ = connect(trace(2 * len(_TEXTS)))
    later = critical_path(con, catalog, request, with_path=False)
    assert len(whole.path) > len(_TEXTS) and later.path == []
    assert "".join(path_json.json_parts(con, catalog, later)) == json.dumps(whole.as_json(), default=str)


@pytest.mark.slow  # 1 s
def test_no_path_is_an_empty_list() -> None:
    con, trace_id = connect([op("alone", 0, 0)])
    answer = critical_path(con, load_catalog(), WindowRequest(trace_id), with_path=False)
    text = "".join(path_json.json_parts(con, load_catalog(), answer))
    assert text == json.dumps(answer.as_json()) and not answer.success


@pytest.mark.slow  # 2 s
def test_the_path_is_never_whole_in_memory() -> None:
    con, trace_id = connect(trace(3 * len(_TEXTS)))
    answer = critical_path(con, load_catalog(), WindowRequest(trace_id), with_path=False)
    parts = path_json.json_parts(con, load_catalog(), answer)
    assert isinstance(parts, Iterator) and next(parts) == '{"success": '


@settings(max_examples=examples(100))
@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-(10**16), 10**16) | st.integers(-2000, 2000), min_size=1))
@example([10**15, 10**15 - 1, -(10**15), 0, -1, 999, 1000, 1001, 100, 10])
@example([-(10**15) - 1])
def test_times_are_written_as_python_writes_them(ns: list[int]) -> None:
    parts = path_json._microseconds(np.array(ns))
    texts = ["".join(row) for row in zip(*(part.to_pylist() for part in parts), strict=True)]
    assert texts == [repr(time_ns / 1000) for time_ns in ns]
