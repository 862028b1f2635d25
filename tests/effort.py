"""How much the tests do: the settings in the environment, and the choice of tests, examples and steps.

`SLOW=1`: every slow test, and every example of the random tests. `SLOW=3/60`: the third of sixty shares of the slow
tests, as in CI. `STEPS=all`: tests that kill a process kill it at each step, as in `make attack`; otherwise at a few
steps that `SEED` chooses. The header of each run prints its seed.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

import pytest
from _pytest.mark import ParameterSet
from hypothesis.strategies import SearchStrategy, lists


def asked(text: str) -> tuple[bool, tuple[int, int] | None]:
    """Parse `SLOW`: whether all tests run, and otherwise the share and the number of shares. Raise UsageError."""
    if text in ("", "0", "1"):
        return text == "1", None
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise pytest.UsageError(f"SLOW={text}: give 1 for all slow tests, or 3/6 for the third of six shares of them")
    return False, (int(match[1]), int(match[2]))


SLOW, SHARE = asked(os.environ.get("SLOW", ""))
"""Whether all tests run at full size, and which share of the slow tests runs."""

# Workers of a run inherit the seed of the process that starts them.
SEED = int(os.environ.setdefault("SEED", str(random.randrange(10_000))))

ALL_STEPS = os.environ.get("STEPS") == "all"

LARGE = 150_000
"""Compressed size in bytes from which a real trace counts as slow. Smaller traces of every kind remain."""


LARGE_TRACES = (
    "a100_cuda_graphs_rank0_of_16",
    "a100_nccl_metadata",
    "b200_eager_71_process_groups",
    "mi300_qwen",
    "v100_ns_absolute",
)
"""The large traces that tests name, without two that always run.

These are h100_qwen (inference) and mi300_rccl_metadata (training).
"""


def slow_if(is_slow: bool) -> list[pytest.MarkDecorator]:
    """Return the marks of a parameter."""
    return [pytest.mark.slow] if is_slow else []


def named(names: Iterable[str]) -> list[Any]:
    """Return parameters for a test on these real traces. Large ones are slow."""
    return [pytest.param(name, marks=slow_if(name in LARGE_TRACES)) for name in names]


def first_of(values: Iterable[Any], n: int) -> list[Any]:
    """Return parameters for a test, of which all but the first n are slow."""
    params = [value if isinstance(value, ParameterSet) else pytest.param(*_as_tuple(value)) for value in values]
    return [
        *params[:n],
        *(pytest.param(*param.values, id=param.id, marks=[*param.marks, pytest.mark.slow]) for param in params[n:]),
    ]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def shares(tests: Mapping[str, str | None], n: int) -> dict[str, int]:
    """Return the share (1 to n) of each slow test, by its id (`file::name`).

    `tests` maps an id to its `together`, or None.

    The tests of a file take turns, so that each share has some of them. The file's name decides which share is first,
    so a test stays in its share when other files change. Tests that are marked with one name, `slow(together="spark")`,
    are in one share, because their setup takes longer than the tests.
    """
    share_of: dict[str, int] = {}
    seen: dict[str, int] = {}
    for test, together in tests.items():
        file = test.partition("::")[0]
        seen[file] = seen.get(file, crc32(file.encode())) + 1
        share_of[test] = (crc32(together.encode()) if together else seen[file]) % n + 1
    return share_of


def steps(n: int, few: int = 1) -> list[int]:
    """Return the numbers of the steps, from 1 to n, at which a test kills a process.

    With STEPS=all these are all steps, otherwise a few that the seed chooses. SLOW=1 doubles their number.
    """
    few = min(few * 2 if SLOW else few, n)
    return list(range(1, n + 1)) if ALL_STEPS else sorted(random.Random(SEED).sample(range(1, n + 1), few))


def examples(full: int) -> int:
    """Return how many examples a hypothesis test tries: `full` with SLOW=1, else an eighth, at least min(5, full)."""
    return full if SLOW else max(full // 8, min(full, 5))


def _quarter(full: int) -> int:
    return max(full // 4, min(full, 5))


LISTS = 3 if SLOW else 2
"""How many lists a test tries that takes its examples from `at_once`. The first list has the simplest examples."""


def at_once(strategy: SearchStrategy[Any], full: int) -> SearchStrategy[list[Any]]:
    """Join a quarter of `full` examples into one list.

    The models take little longer for a hundred small traces than for one.
    """
    return lists(strategy, min_size=_quarter(full), max_size=_quarter(full))
