"""Launch delays, waits and shares of every window.

The traces are random captures whose work crosses step borders, and every shared trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.conftest import SHARED
from tests.critical_path.invariants import check
from tests.effort import LARGE, SLOW, at_once
from tests.synthetic.random_capture import random_capture

TRACES = (
    "critical_path/*.json.gz", "single/*.json.gz", "dialects/*.json*", "ranks/torchrec_4/[02].json.gz",
    "ranks/torchrec_unequal/[01].json.gz", "ranks/dlrm_8/worker[17].json.gz", "ranks/sampled_128/rank1.json.gz",
)  # fmt: skip
TWINS = ("dialects/v100_2021_top_level_array", "torchrec_4/0", "torchrec_unequal/0")
"""Large traces that are similar to another one: the same writer and the same kind of program."""


def without_sync_rows(document: dict[str, Any]) -> dict[str, Any]:
    """Return the capture as a profiler without CUDA synchronization events would write it."""
    return {**document, "traceEvents": [e for e in document["traceEvents"] if e.get("cat") != "cuda_sync"]}


@settings(max_examples=3 if SLOW else 1, deadline=None)
@given(at_once(st.tuples(st.integers(0, 10**9), st.booleans()), 12))
def test_random_captures(chosen: list[tuple[int, bool]]) -> None:
    assume(len({*chosen}) > 1)  # hypothesis's simplest list repeats one capture
    documents = [(random_capture(seed), with_sync_rows) for seed, with_sync_rows in chosen]
    check(*(document if with_sync_rows else without_sync_rows(document) for document, with_sync_rows in documents))


@pytest.mark.slow  # it tests the generator, which seldom changes
def test_work_that_crosses_the_border_of_a_step_is_no_launch_delay() -> None:
    """The generator produces the cases of the property: some work waits for work of the previous step."""
    assert check(*(random_capture(seed) for seed in range(8))) > 2


def _shared_traces() -> list[Path]:
    paths = (path for pattern in TRACES for path in (SHARED / "traces").glob(pattern))
    return sorted(path for path in paths if not str(path).removesuffix(".json.gz").endswith(TWINS))


@pytest.mark.slow  # tests above cover random captures, and causes/test_causes.py the large traces
def test_small_shared_traces(shared: Path) -> None:
    check(*(path for path in _shared_traces() if path.stat().st_size <= LARGE))
