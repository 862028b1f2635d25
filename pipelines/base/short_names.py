"""Texts made short without becoming alike: what they differ in stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def shortened(texts: Iterable[str], width: int) -> list[str]:
    """Returns each text in at most `width` characters (at least 8), with `…` for what is left out of its middle.

    Texts that differ still differ: where they differ only in the part left out, that part is shown instead.
    """
    texts = list(texts)
    short = {text: _without_middle(text, width) for text in texts}
    for same in _alike(short):
        short |= {text: _around(text, common(same), width) for text in same}
    taken: set[str] = set()
    for text, shown in short.items():
        number = 1
        while short[text] in taken:
            number += 1
            short[text] = f"{shown[: width - 1 - len(str(number))]}~{number}"
        taken.add(short[text])
    return [short[text] for text in texts]


def _without_middle(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    head = width // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _around(text: str, at: int, width: int) -> str:
    """The text's beginning, what stands at `at`, and as much of its end as there is room for."""
    if len(text) <= width:
        return text
    head, tail = width // 4, width // 4
    middle = width - head - tail - 2
    start = min(max(at - 1, head), len(text) - tail - middle)
    if start <= head:  # what differs follows the beginning
        return f"{text[: width - tail - 1]}…{text[len(text) - tail :]}"
    return f"{text[:head]}…{text[start : start + middle]}…{text[len(text) - tail :]}"


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Groups of different texts that are shown alike."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text, shown in short.items():
        groups[shown].append(text)
    return [group for group in groups.values() if len(group) > 1]


def common(texts: list[str]) -> int:
    """How many characters all texts begin with."""
    first, last = min(texts), max(texts)
    return next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
