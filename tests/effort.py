"""How much the tests do. `SLOW=1`, which CI sets, runs what takes long and every example of the random tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis.strategies import SearchStrategy, lists

SLOW = os.environ.get("SLOW", "0") not in ("", "0")


LARGE = 150_000
"""Bytes, packed: real traces from here on are slow, and smaller ones of every kind remain."""


LARGE_TRACES = (
    "a100_cuda_graphs_rank0_of_16",
    "a100_nccl_metadata",
    "b200_eager_71_process_groups",
    "mi300_qwen",
    "v100_ns_absolute",
)
"""Those of them that tests name, but for two that always run: h100_qwen (inference), mi300_rccl_metadata (training)."""


def slow_if(is_slow: bool) -> list[pytest.MarkDecorator]:
    """The marks of a parameter."""
    return [pytest.mark.slow] if is_slow else []


def named(names: Iterable[str]) -> list[Any]:
    """Parameters of a test on real traces that it names: it is slow on large ones."""
    return [pytest.param(name, marks=slow_if(name in LARGE_TRACES)) for name in names]


def examples(full: int) -> int:
    """How many examples a hypothesis test tries: `full` of them with SLOW=1, else an eighth, but no fewer than 5."""
    return full if SLOW else max(full // 8, min(full, 5))


def _quarter(full: int) -> int:
    return max(full // 4, min(full, 5))


LISTS = 5 if SLOW else 2
"""How many lists a test tries that takes its examples from `at_once`: the first is of the simplest there are."""


def at_once(strategy: SearchStrategy[Any], full: int) -> SearchStrategy[list[Any]]:
    """A quarter of `full` examples in one list, for tests where a hundred small traces cost little more than one."""
    return lists(strategy, min_size=_quarter(full), max_size=_quarter(full))
