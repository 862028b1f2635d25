"""Suggestions for a name that does not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches


def meant(name: str, names: Collection[str]) -> str:
    """Return the question whether the user meant one of the names similar to `name`.

    Without a similar name, return a list of all names, or a text that there are none.
    """
    return next(near(name, names), f"there are: {', '.join(names)}" if names else "there are none")


def near(name: str, names: Collection[str]) -> Iterator[str]:
    """Yield the question whether the user meant one of the names similar to `name`.

    Yield nothing if no name is similar.
    """
    close = get_close_matches(name, names, n=3, cutoff=0.4)
    if close:
        yield f"did you mean {' or '.join(close)}?"
