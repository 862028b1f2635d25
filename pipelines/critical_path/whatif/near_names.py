"""Names that somebody may have meant by one that a window does not have."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_MOST = 3
_ALIKE = 0.6
"""How alike names are, by difflib's ratio, 0 to 1."""


def near_names(what: str, names: Collection[str]) -> list[str]:
    """Returns up to three of `names`: those that hold `what` (without * and ?, in any case), shortest first, then those spelled like it."""
    wanted = what.replace("*", "").replace("?", "").lower()
    if not wanted:
        return []
    holding = sorted((name for name in names if wanted in name.lower()), key=lambda name: (len(name), name))
    return list(dict.fromkeys([*holding[:_MOST], *_spelled_like(wanted, names)]))[:_MOST]


def _spelled_like(wanted: str, names: Collection[str]) -> list[str]:
    """Without their namespaces, which make all names of one alike."""
    spellings = {_bare(name.lower()): name for name in names}
    return [spellings[close] for close in get_close_matches(_bare(wanted), spellings, n=_MOST, cutoff=_ALIKE)]


def _bare(name: str) -> str:
    return name.rpartition("::")[2]
