"""Alignment of two nearly equal sequences of names.

A profiler trace and an execution trace of one run differ only in a few operators. The algorithm walks along both
sequences. At a difference, it continues at the nearest position from which the next names agree. Its time is linear in
the lengths, except at differences.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

AGREE = 8  # names in a row that must agree before a position is accepted
FAR = 100_000  # names of `a` that are searched for such a position


def align(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs (index in a, index in b) of equal names, ascending in both."""
    pairs: list[tuple[int, int]] = []
    starts: dict[tuple[str, ...], list[int]] = {}
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        starts = starts or _places(b)
        nearest = _nearest(a, i, j, starts)
        if nearest is None:
            break
        i, j = nearest
    return pairs


def _places(names: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
    """Return the indices at which each run of AGREE names begins.

    Runs at the end of `names` are shorter. They match only a run at the end of the other sequence.
    """
    starts: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in range(len(names)):
        starts[tuple(names[index : index + AGREE])].append(index)
    return starts


def _nearest(a: Sequence[str], i: int, j: int, starts: dict[tuple[str, ...], list[int]]) -> tuple[int, int] | None:
    best: tuple[int, int] | None = None
    steps = FAR
    for index in range(i, min(len(a), i + FAR)):
        if index - i >= steps:
            break
        candidates = starts.get(tuple(a[index : index + AGREE]), ())
        first_after = bisect_left(candidates, j)
        if first_after < len(candidates) and index - i + candidates[first_after] - j < steps:
            best, steps = (index, candidates[first_after]), index - i + candidates[first_after] - j
    return best
