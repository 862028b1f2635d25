"""Shortening of texts that keeps different texts different."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def shortened(texts: Iterable[str], width: int) -> list[str]:
    """Return each text in at most `width` characters (at least 8), with `…` for the omitted middle.

    Different texts stay different. If texts differ only in the omitted part, that part is shown instead.
    """
    texts = list(texts)
    short = {text: _without_middle(text, width) for text in texts}
    for group in _alike(short):
        short |= {text: _around(text, common(group), width) for text in group}
    used: set[str] = set()
    for text, shortened_text in short.items():
        number = 1
        while short[text] in used:
            number += 1
            short[text] = f"{shortened_text[: width - 1 - len(str(number))]}~{number}"
        used.add(short[text])
    return [short[text] for text in texts]


def _without_middle(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    head = width // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _around(text: str, index: int, width: int) -> str:
    """Return the text's beginning, the part at `index`, and as much of its end as fits."""
    if len(text) <= width:
        return text
    head, tail = width // 4, width // 4
    middle = width - head - tail - 2
    start = min(max(index - 1, head), len(text) - tail - middle)
    if start <= head:  # the differing part follows the beginning
        return f"{text[: width - tail - 1]}…{text[len(text) - tail :]}"
    return f"{text[:head]}…{text[start : start + middle]}…{text[len(text) - tail :]}"


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Return groups of different texts with the same short text."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text, short_text in short.items():
        groups[short_text].append(text)
    return [group for group in groups.values() if len(group) > 1]


def common(texts: list[str]) -> int:
    """Return the length of the common prefix of all texts."""
    first, last = min(texts), max(texts)
    return next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
