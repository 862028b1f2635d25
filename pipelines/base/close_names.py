"""What somebody meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches


def meant(name: str, names: Collection[str]) -> str:
    """Returns the names that are like this one, as a question to who gave it; all of them if none is."""
    return next(near(name, names), f"there are: {', '.join(names)}")


def near(name: str, names: Collection[str]) -> Iterator[str]:
    """Yields the question for the names that are like this one, if any is."""
    close = get_close_matches(name, names, n=3, cutoff=0.4)
    if close:
        yield f"did you mean {' or '.join(close)}?"
