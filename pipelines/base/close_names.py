"""What somebody meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def meant(name: str, names: Collection[str]) -> str:
    """Returns the names that are like this one, as a question to who gave it; all of them if none is."""
    close = get_close_matches(name, names, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(names)}"
