"""An answer for people: no cell is longer than three lines, and what has no room as a table is shown row by row."""

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
"""Lines of a cell."""
_WORD = 5  # characters of a word in a heading that is never cut: rank, steps


def print_answer(
    to: Console, columns: Sequence[Sequence[str]], kinds: Sequence[Kind], on_right: Sequence[bool]
) -> bool:
    """Print an answer, column by column, headings first. Returns whether it was a table; else it was one block per row."""
    widths = _widths(columns, kinds, to.width)
    if widths is None:
        _print_blocks(to, columns, kinds)
        return False
    table = Table()
    for (heading, *_), width, right in zip(columns, widths, on_right, strict=True):
        table.add_column(_folded(heading, width), justify="right" if right else "left", overflow="fold", width=width)
    cells = [
        column[1:] if kind is Kind.WHOLE else in_lines(to, _said(to, column[1:], width, kind), width, kind)
        for column, kind, width in zip(columns, kinds, widths, strict=True)
    ]
    for row in zip(*cells, strict=True):
        table.add_row(*map(_cell, row))
    to.print(table)
    return True


def _widths(columns: Sequence[Sequence[str]], kinds: Sequence[Kind], width: int) -> list[int] | None:
    """Returns the width of each column: numbers and ids on one line, their headings over several if need be; None without room."""
    room = width - 3 * len(columns) - 1
    for lines in range(1, MOST_LINES + 1):
        whole, others = [], []
        for (heading, *values), kind in zip(columns, kinds, strict=True):
            shortest = max((len(word) for word in heading.split("_") if len(word) <= _WORD), default=1)
            least = next(size for size in count(shortest) if len(_parts(heading, size)) <= lines)
            (whole if kind is Kind.WHOLE else others).append(max(least, *map(len, values), 1) if values else least)
        wished = widest = max(others, default=0)
        while widest > LEAST and sum(whole) + sum(min(size, widest) for size in others) > room:
            widest -= 1
        fits = sum(whole) + sum(min(size, widest) for size in others) <= room
        if fits and (widest == wished or widest >= 2 * LEAST or lines == MOST_LINES):
            left, right = iter(whole), iter(others)
            return [next(left) if kind is Kind.WHOLE else min(next(right), widest) for kind in kinds]
    return None


def _parts(heading: str, width: int) -> list[str]:
    """A heading in lines of at most a width, cut after `_`, else anywhere."""
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
    """Returns texts that take at most three lines of a width, with … for what is left out: of names the middle, of sentences
    the end.
    """
    size, found = MOST_LINES * width, list(texts)
    while any(len(text) > width and _n_lines(to, text, width) > MOST_LINES for text in found) and size > 1:
        if kind is Kind.PROSE:
            found = [text if len(text) <= size else f"{text[: size - 1]}…" for text in texts]
        else:
            found = shortened(texts, max(size, LEAST))
        size -= max(width // 4, 1)
    return found


def _n_lines(to: Console, text: str, width: int) -> int:
    return len(Text(visible(text)).wrap(to, width, overflow="fold"))


def _print_blocks(to: Console, columns: Sequence[Sequence[str]], kinds: Sequence[Kind]) -> None:
    names = [heading for heading, *_ in columns]
    first = max(map(len, names))
    room = max(to.width - first - 2, LEAST)
    cells = [
        in_lines(to, _said(to, column[1:], room, kind), room, kind) for column, kind in zip(columns, kinds, strict=True)
    ]
    for number, row in enumerate(zip(*cells, strict=True), 1):
        block = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        block.add_column(style="dim", no_wrap=True)
        block.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            block.add_row(name, _cell(cell))
        to.print(styled("[bold]row {:,}[/]", number))
        to.print(block)


def _said(to: Console, texts: Sequence[str], room: int, kind: Kind) -> Sequence[str]:
    """Names as people say them where they have no room on one line, in a narrow column on three; a pipe gets them as they are."""
    is_long = kind is Kind.NAME and max(map(len, texts), default=0) > room
    return short_names(texts, max(room, MOST_LINES * LEAST)) if is_long and to.is_terminal else texts


def _cell(text: str) -> str | Text:
    return styled("[dim]NULL[/]") if text == NULL else text
