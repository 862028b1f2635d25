"""Batches by size: many small items share one query, and a large item is processed alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Thing = TypeVar("Thing")


def in_groups(sized: Iterable[tuple[Thing, int]], at_most: int) -> Iterator[list[Thing]]:
    """Yield the items in order, in groups whose sizes add up to at most `at_most`.

    A larger item forms a separate group.
    """
    group: list[Thing] = []
    total = 0
    for item, size in sized:
        if group and total + size > at_most:
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group
