"""How much the tests do: what is read of the environment, and what chooses among tests, examples and steps.

`SLOW=1`: every slow test, and every example of the random tests. `SLOW=3/60`: of the slow tests the third of sixty shares, as
in CI. `STEPS=all`: tests that kill a process do it at each step, as in `make attack`; otherwise at a few that `SEED`
chooses. The head of each run tells its seed.
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
    """What `SLOW` says: whether all is run, and otherwise which share of how many. Raises UsageError."""
    if text in ("", "0", "1"):
        return text == "1", None
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise pytest.UsageError(f"SLOW={text}: give 1 for all slow tests, or 3/6 for the third of six shares of them")
    return False, (int(match[1]), int(match[2]))


SLOW, SHARE = asked(os.environ.get("SLOW", ""))
"""Whether everything is run, at its full size; which share of the slow tests."""

# Workers of a run take the seed of the process that starts them.
SEED = int(os.environ.setdefault("SEED", str(random.randrange(10_000))))

ALL_STEPS = os.environ.get("STEPS") == "all"

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


def first_of(values: Iterable[Any], n: int) -> list[Any]:
    """Parameters of a test: it is slow on all but the first n."""
    params = [value if isinstance(value, ParameterSet) else pytest.param(*_as_tuple(value)) for value in values]
    return [
        *params[:n],
        *(pytest.param(*param.values, id=param.id, marks=[*param.marks, pytest.mark.slow]) for param in params[n:]),
    ]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def shares(tests: Mapping[str, str | None], n: int) -> dict[str, int]:
    """Which of n shares each slow test is in, from 1 on, by its id (`file::name`); `tests` has what each is together with.

    The tests of a file take turns, so that each share has some of it; which begins is a matter of the file's name. So a test
    stays in its share whatever happens to other files. Tests that are marked with one name, `slow(together="spark")`, are in
    one share: what is set up for them takes longer than they do.
    """
    share_of: dict[str, int] = {}
    seen: dict[str, int] = {}
    for test, together in tests.items():
        file = test.partition("::")[0]
        seen[file] = seen.get(file, crc32(file.encode())) + 1
        share_of[test] = (crc32(together.encode()) if together else seen[file]) % n + 1
    return share_of


def steps(n: int, few: int = 1) -> list[int]:
    """At which of the steps 1 to n a test kills: with STEPS=all at each, else at a few that the seed chooses.

    With SLOW=1 at twice as many.
    """
    few = min(few * 2 if SLOW else few, n)
    return list(range(1, n + 1)) if ALL_STEPS else sorted(random.Random(SEED).sample(range(1, n + 1), few))


def examples(full: int) -> int:
    """How many examples a hypothesis test tries: `full` of them with SLOW=1, else an eighth, but no fewer than 5."""
    return full if SLOW else max(full // 8, min(full, 5))


def _quarter(full: int) -> int:
    return max(full // 4, min(full, 5))


LISTS = 3 if SLOW else 2
"""How many lists a test tries that takes its examples from `at_once`: the first is of the simplest there are."""


def at_once(strategy: SearchStrategy[Any], full: int) -> SearchStrategy[list[Any]]:
    """A quarter of `full` examples in one list, for tests where a hundred small traces cost little more than one."""
    return lists(strategy, min_size=_quarter(full), max_size=_quarter(full))
