"""Work in groups: many small things cost one query together, and a large one stays alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Thing = TypeVar("Thing")


def in_groups(sized: Iterable[tuple[Thing, int]], at_most: int) -> Iterator[list[Thing]]:
    """Yields things in their order, those together whose sizes add up to at most this; a larger one is alone."""
    group: list[Thing] = []
    total = 0
    for thing, size in sized:
        if group and total + size > at_most:
            yield group
            group, total = [], 0
        group.append(thing)
        total += size
    if group:
        yield group
