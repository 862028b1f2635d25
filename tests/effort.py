"""How much the tests do. `SLOW=1`, which CI sets, runs what takes long and every example of the random tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

SLOW = os.environ.get("SLOW", "0") not in ("", "0")


LARGE = 500_000
"""Bytes, packed: real traces from here on are slow, and smaller ones of every kind remain."""


LARGE_TRACES = (
    "a100_cuda_graphs_rank0_of_16",
    "a100_nccl_metadata",
    "b200_eager_71_process_groups",
    "v100_ns_absolute",
)
"""Those of them that tests name, but for mi300_rccl_metadata, which always runs."""


def slow_if(is_slow: bool) -> list[pytest.MarkDecorator]:
    """The marks of a parameter."""
    return [pytest.mark.slow] if is_slow else []


def named(names: Iterable[str]) -> list[Any]:
    """Parameters of a test on real traces that it names: it is slow on large ones."""
    return [pytest.param(name, marks=slow_if(name in LARGE_TRACES)) for name in names]


def by_size(paths: Iterable[Path]) -> list[Any]:
    """Parameters of a test on real files: it is slow on the large ones."""
    return [pytest.param(path, marks=slow_if(path.stat().st_size > LARGE)) for path in paths]


def examples(full: int) -> int:
    """How many examples a hypothesis test tries: `full` of them with SLOW=1, else a quarter, but no fewer than 5."""
    return full if SLOW else max(full // 4, min(full, 5))
