"""Tables that fit a narrow terminal: numbers stay whole, names lose their middle."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from pipelines.base.kernel_names import short_names

LEAST = 8
"""Names and sentences get no less room than this, in characters."""


class Kind(Enum):
    """What a column holds, which says how it may be made narrower."""

    WHOLE = "numbers and ids: never"
    NAME = "its middle is left out"
    PROSE = "folded over several lines"


class Fitted(NamedTuple):
    """The cells of a table, column by column, and whether it has room where numbers and ids stay on one line."""

    columns: list[Sequence[str]]
    has_room: bool


def fit(columns: Sequence[Sequence[str]], kinds: Sequence[Kind], width: int, shorten: bool = True) -> Fitted:
    """Shorten the names in the widest columns of a table, headings first, until it has room in `width` characters.

    Without `shorten` all cells stay as they are, to be folded.
    """
    widths = [max(map(len, column), default=0) for column in columns]
    room = width - 3 * len(columns) - 1
    whole = sum(size for size, kind in zip(widths, kinds, strict=True) if kind is Kind.WHOLE)
    others = [size for size, kind in zip(widths, kinds, strict=True) if kind is not Kind.WHOLE]
    widest = max(others, default=0)
    while widest > LEAST and whole + sum(min(size, widest) for size in others) > room:
        widest -= 1
    fitted = [
        [column[0], *short_names(column[1:], widest)] if shorten and kind is Kind.NAME and size > widest else column
        for column, size, kind in zip(columns, widths, kinds, strict=True)
    ]
    return Fitted(fitted, whole + sum(min(size, widest) for size in others) <= room)
