"""Human-readable answers: a table with at most three lines per cell, or one block per row if a table does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.base.foreign_text import visible
from pipelines.base.kernel_names import short_names
from pipelines.base.short_names import shortened
from pipelines.faces.cells import NULL
from pipelines.faces.cli.console import styled
from pipelines.faces.cli.narrow_tables import LEAST, Kind

MOST_LINES = 3
"""Maximum number of lines in a cell."""
_WORD = 5  # words of a heading with at most this many characters are never split: rank, steps


def print_answer(
    to: Console, columns: Sequence[Sequence[str]], kinds: Sequence[Kind], on_right: Sequence[bool]
) -> bool:
    """Print an answer as a table, or as one block per row if a table does not fit. Return True for a table.

    `columns`: the cells of each column, its heading first. `on_right`: whether a column is right-aligned.
    """
    widths = _widths(columns, kinds, to.width)
    if widths is None:
        _print_blocks(to, columns, kinds)
        return False
    table = Table()
    for (heading, *_), width, right in zip(columns, widths, on_right, strict=True):
        table.add_column(_folded(heading, width), justify="right" if right else "left", overflow="fold", width=width)
    cells = [
        column[1:] if kind is Kind.WHOLE else in_lines(to, _short_if_needed(to, column[1:], width, kind), width, kind)
        for column, kind, width in zip(columns, kinds, widths, strict=True)
    ]
    for row in zip(*cells, strict=True):
        table.add_row(*map(_cell, row))
    to.print(table)
    return True


def _widths(columns: Sequence[Sequence[str]], kinds: Sequence[Kind], width: int) -> list[int] | None:
    """Return the width of each column in characters, or None if a table does not fit into `width`.

    Numbers and ids stay on one line. Headings may take up to MOST_LINES lines.
    """
    room = width - 3 * len(columns) - 1
    for lines in range(1, MOST_LINES + 1):
        fixed_widths, flexible_widths = [], []
        for (heading, *values), kind in zip(columns, kinds, strict=True):
            shortest = max((len(word) for word in heading.split("_") if len(word) <= _WORD), default=1)
            min_width = next(size for size in count(shortest) if len(_parts(heading, size)) <= lines)
            (fixed_widths if kind is Kind.WHOLE else flexible_widths).append(
                max(min_width, *map(len, values), 1) if values else min_width
            )
        wished = widest = max(flexible_widths, default=0)
        while widest > LEAST and sum(fixed_widths) + sum(min(size, widest) for size in flexible_widths) > room:
            widest -= 1
        fits = sum(fixed_widths) + sum(min(size, widest) for size in flexible_widths) <= room
        if fits and (widest == wished or widest >= 2 * LEAST or lines == MOST_LINES):
            fixed, flexible = iter(fixed_widths), iter(flexible_widths)
            return [next(fixed) if kind is Kind.WHOLE else min(next(flexible), widest) for kind in kinds]
    return None


def _parts(heading: str, width: int) -> list[str]:
    """Split a heading into lines of at most `width` characters, after `_`, or anywhere in a word that is longer."""
    lines = [""]
    for piece in heading.replace("_", "_\n").splitlines():
        if len(lines[-1]) + len(piece) > width and lines[-1]:
            lines.append("")
        while len(piece) > width:
            lines[-1], piece = piece[:width], piece[width:]
            lines.append("")
        lines[-1] += piece
    return lines


def _folded(heading: str, width: int) -> Text:
    return Text("\n".join(_parts(visible(heading), width)))


def in_lines(to: Console, texts: Sequence[str], width: int, kind: Kind) -> list[str]:
    """Shorten texts to at most MOST_LINES lines of `width` characters.

    An ellipsis replaces the middle of names and the end of sentences.
    """
    size, fitted = MOST_LINES * width, list(texts)
    while any(len(text) > width and _n_lines(to, text, width) > MOST_LINES for text in fitted) and size > 1:
        if kind is Kind.PROSE:
            fitted = [text if len(text) <= size else f"{text[: size - 1]}…" for text in texts]
        else:
            fitted = shortened(texts, max(size, LEAST))
        size -= max(width // 4, 1)
    return fitted


def _n_lines(to: Console, text: str, width: int) -> int:
    return len(Text(visible(text)).wrap(to, width, overflow="fold"))


def _print_blocks(to: Console, columns: Sequence[Sequence[str]], kinds: Sequence[Kind]) -> None:
    names = [heading for heading, *_ in columns]
    first = max(map(len, names))
    room = max(to.width - first - 2, LEAST)
    cells = [
        in_lines(to, _short_if_needed(to, column[1:], room, kind), room, kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    for number, row in enumerate(zip(*cells, strict=True), 1):
        block = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        block.add_column(style="dim", no_wrap=True)
        block.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            block.add_row(name, _cell(cell))
        to.print(styled("[bold]row {:,}[/]", number))
        to.print(block)


def _short_if_needed(to: Console, texts: Sequence[str], room: int, kind: Kind) -> Sequence[str]:
    """Return short names if a name is longer than `room` characters on a terminal, otherwise the texts unchanged.

    In a narrow column, short names may take three lines. A pipe gets the full names.
    """
    is_long = kind is Kind.NAME and max(map(len, texts), default=0) > room
    return short_names(texts, max(room, MOST_LINES * LEAST)) if is_long and to.is_terminal else texts


def _cell(text: str) -> str | Text:
    return styled("[dim]NULL[/]") if text == NULL else text
