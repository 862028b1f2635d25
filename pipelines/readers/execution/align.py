"""Aligns two nearly equal sequences of names.

A profiler trace and an execution trace of one run differ only in a few operators. The algorithm walks along both and,
where they diverge, continues at the nearest position from which the next names agree. Linear except where they diverge.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

AGREE = 8  # names in a row that must agree before a position is accepted
FAR = 100_000  # names of `a` that are searched for one


def align(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Returns pairs (index in a, index in b) of equal names, ascending in both."""
    pairs: list[tuple[int, int]] = []
    places: dict[tuple[str, ...], list[int]] = {}
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        places = places or _places(b)
        nearest = _nearest(a, i, j, places)
        if nearest is None:
            break
        i, j = nearest
    return pairs


def _places(names: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
    """Returns where each run of AGREE names begins; shorter runs at the end of the sequence match only an end."""
    places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for at in range(len(names)):
        places[tuple(names[at : at + AGREE])].append(at)
    return places


def _nearest(a: Sequence[str], i: int, j: int, places: dict[tuple[str, ...], list[int]]) -> tuple[int, int] | None:
    best: tuple[int, int] | None = None
    steps = FAR
    for at in range(i, min(len(a), i + FAR)):
        if at - i >= steps:
            break
        found = places.get(tuple(a[at : at + AGREE]), ())
        place = bisect_left(found, j)
        if place < len(found) and at - i + found[place] - j < steps:
            best, steps = (at, found[place]), at - i + found[place] - j
    return best
