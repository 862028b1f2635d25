"""Output of the commands: consoles, errors with hints, JSON, progress bars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.base.foreign_text import visible


class _Console(Console):
    """A console that prints strings as one line of plain text. Names are never interpreted as markup.

    Our own colours and lines are Text (see `styled`).
    """

    def render_str(self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any) -> Text:
        return Text(visible(text), style=style, justify=justify, overflow=overflow)

    def print(self, *things: Any, **how: Any) -> None:
        """Print. On stdout, print the lines queued by `print_above` first."""
        while self is out and _above:
            super().print(_above.pop(0), soft_wrap=True)
        super().print(*things, **how)

    def line(self, template: str, *values: Any) -> None:
        """Print `styled(template, *values)` on one line, even if the terminal is narrower."""
        self.print(styled(template, *values), soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Raise the exception again. commands.py then ends the process as other tools do.

        Rich would exit with 1, and print its buffer before.
        """
        raise  # the exception that rich is handling


def make_console(**options: Any) -> _Console:
    """Return a console that prints strings as plain text."""
    return _Console(highlight=False, **options)


def styled(template: str, *values: Any, **named: Any) -> Text:
    """Return rich's markup with its fields `{}`, `{:,}` and `{name}` filled in.

    The fields are filled after the markup is parsed, so markup in a value is plain text: `styled("[red]{}[/]", name)`.
    """
    text = Text.from_markup(template, emoji=False)
    fields = list(_FIELD.finditer(text.plain))
    pieces = text.divide([position for field in fields for position in field.span()])
    unnamed, filled_text = iter(values), Text(style=text.style, end=text.end)
    for number, piece in enumerate(pieces):
        if number % 2:  # a field
            name, how = fields[number // 2].groups()
            filled = Text(visible(format(named[name] if name else next(unnamed), how or "")))
            for span in piece.spans:
                filled.stylize(span.style)
            piece = filled
        filled_text.append_text(piece)
    return filled_text


_FIELD = re.compile(r"\{(\w*)(?::([^{}]*))?\}")

# If stdout is not a terminal, tables get more room than the 80 columns that rich would assume.
out = make_console(width=None if sys.stdout is not None and sys.stdout.isatty() else 140)
err = make_console(stderr=True)
_above: list[Text] = []
on_json: list[Callable[[Any], Any]] = []
"""Functions that are called with each answer of `--json` and return the answer to print. caveats.py adds one."""


def print_above(lines: Iterable[Text]) -> list[Text]:
    """Queue lines that are printed above the answer, before its first output on stdout.

    They replace the queued lines. Return the replaced lines, which were not printed.
    """
    before, _above[:] = list(_above), lines
    return before


def fail(message: str, hint: str = "", *, lines: bool = False) -> typer.Exit:
    """Print an error and a hint to stderr, and return the exception with which the caller exits with status 1.

    `lines`: the newlines in the message come from our code or DuckDB, so they are printed as such.
    """
    first, *more = message.split("\n") if lines else [message]
    err.line("[bold red]error:[/] {}", first)
    for text in more:
        err.print(text, soft_wrap=True)
    if hint:
        err.line("[dim]{}[/]", hint)
    return typer.Exit(1)


def print_damaged(states: Iterable[str], lake: object) -> None:
    """Print on stderr how many damaged batches upkeep left unchanged, and the remedy, if any."""
    from pipelines.lake.read.damage import stays_damaged

    if sentence := stays_damaged(states, lake):
        err.print(sentence, style="yellow", soft_wrap=True)


def print_json(value: Any) -> None:
    """Write one JSON value to stdout, unstyled, with the additions of `on_json`."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """Return the JSON text that `print_json` writes."""
    for add in on_json:
        value = add(value)
    return json.dumps(value, default=str)


def print_parts(parts: Iterable[str]) -> None:
    """Write one JSON value to stdout, part by part. The parts contain its caveats, so the queued ones are dropped."""
    print_above(())
    for part in parts:
        sys.stdout.write(part)
    print()


@contextmanager
def progress(total: int | None, what: str) -> Iterator[Any]:
    """Show a progress bar on stderr (none if stderr is not a terminal). Yield `advance(n, text)`.

    With a `total`, the bar has a percentage and the time left. Both disappear if more than `total` is done.
    """
    if not err.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn()]
    estimate_columns: list[ProgressColumn] = [
        TaskProgressColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(compact=True),
        TextColumn("so far:"),
    ]
    columns += [*(estimate_columns if total else ()), TimeElapsedColumn()]
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(visible(what), total=total)

        def advance(n: int = 1, text: str | None = None) -> None:
            bar.update(task, advance=n, description=visible(text or what))
            if total and bar.tasks[0].completed > total:
                bar.columns = (*columns[:3], columns[-1])
                bar.update(task, total=None)

        yield advance


def new_table(*headings: str, title: str | None = None, **options: Any) -> Table:
    """Return a table without rows, with its title on the left.

    A heading that begins with `>` right-aligns its column. In a column whose heading begins with `~`, long words
    continue on the next line instead of ending in an ellipsis.
    """
    table = Table(title=title, title_justify="left", caption_justify="left", **options)
    for heading in headings:
        flags = heading[: len(heading) - len(heading.lstrip(">~"))]
        table.add_column(
            heading[len(flags) :],
            justify="right" if ">" in flags else "left",
            overflow="fold" if "~" in flags else "ellipsis",
        )
    return table


def print_rows(headings: tuple[str, ...], rows: list[tuple[str, ...]], json: bool) -> None:
    """Print rows as a table, or as JSON with the headings as keys."""
    if json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
        return
    table = new_table(*(f"~{heading}" for heading in headings))
    for row in rows:
        table.add_row(*row)
    out.print(table)
