"""Tables that fit a narrow terminal: numbers are never cut, names lose their middle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from rich.table import Table

from pipelines.base.kernel_names import short_names
from pipelines.faces.cli.console import new_table

LEAST = 8
"""Minimum width of names and sentences, in characters."""


class Kind(Enum):
    """Kind of a column's values, which determines how the column may be narrowed."""

    WHOLE = "numbers and ids: never"
    NAME = "its middle is left out"
    PROSE = "folded over several lines"


class Fitted(NamedTuple):
    """The cells of a table by column, and whether the table fits with numbers and ids on one line."""

    columns: list[Sequence[str]]
    has_room: bool


def fit(columns: Sequence[Sequence[str]], kinds: Sequence[Kind], width: int, shorten: bool = True) -> Fitted:
    """Shorten the names in the widest columns of a table until it fits into `width` characters.

    Each column begins with its heading, which stays unchanged. Without `shorten`, no cell changes, and the caller folds
    the cells.
    """
    widths = [max(map(len, column), default=0) for column in columns]
    room = width - 3 * len(columns) - 1
    fixed_width = sum(size for size, kind in zip(widths, kinds, strict=True) if kind is Kind.WHOLE)
    flexible_widths = [size for size, kind in zip(widths, kinds, strict=True) if kind is not Kind.WHOLE]
    widest = max(flexible_widths, default=0)
    while widest > LEAST and fixed_width + sum(min(size, widest) for size in flexible_widths) > room:
        widest -= 1
    fitted = [
        [column[0], *short_names(column[1:], widest)] if shorten and kind is Kind.NAME and size > widest else column
        for column, size, kind in zip(columns, widths, kinds, strict=True)
    ]
    return Fitted(fitted, fixed_width + sum(min(size, widest) for size in flexible_widths) <= room)


def fitted_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], kinds: Sequence[Kind], width: int, **options: Any
) -> Table:
    """Return a table that fits into `width` characters. `headings`, `options`: see new_table. `kinds`: see `fit`."""
    table = new_table(*headings, **options)
    cells = zip((heading.lstrip(">~") for heading in headings), *rows, strict=True)
    fitted = fit([list(column) for column in cells], kinds, width)
    for column, kind in zip(table.columns, kinds, strict=True):
        column.no_wrap = fitted.has_room and kind is Kind.WHOLE
    for row in zip(*(column[1:] for column in fitted.columns), strict=True):
        table.add_row(*row)
    return table
