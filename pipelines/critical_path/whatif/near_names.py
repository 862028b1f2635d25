"""Names in a window that are similar to a name that it does not contain."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_MOST = 3
_ALIKE = 0.6
"""Minimum similarity of names, by difflib's ratio, 0 to 1."""


def near_names(what: str, names: Collection[str]) -> list[str]:
    """Return up to three of `names` that are similar to `what`.

    Names that contain `what` (without * and ?, in any case) come first, shortest first, then names with a similar
    spelling.
    """
    text = what.replace("*", "").replace("?", "").lower()
    if not text:
        return []
    holding = sorted((name for name in names if text in name.lower()), key=lambda name: (len(name), name))
    return list(dict.fromkeys([*holding[:_MOST], *_spelled_like(text, names)]))[:_MOST]


def _spelled_like(text: str, names: Collection[str]) -> list[str]:
    """Return names with a similar spelling.

    Namespaces are ignored, because all names of a namespace would be similar.
    """
    spellings = {_bare(name.lower()): name for name in names}
    return [spellings[close] for close in get_close_matches(_bare(text), spellings, n=_MOST, cutoff=_ALIKE)]


def _bare(name: str) -> str:
    return name.rpartition("::")[2]
