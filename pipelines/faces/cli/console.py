"""What the commands share: options, consoles, errors with hints, progress bars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.base.foreign_text import visible
from pipelines.base.paths import DUCKLAKE, UnusablePath, local_path


def local(given: str | Path, instead: str = "give a path on this machine") -> Path:
    """Returns a path that the user gave; an error if it is not on this machine. `instead`: what to do for a DuckLake."""
    if str(given).startswith(DUCKLAKE):
        raise typer.BadParameter(f"this needs a folder, and {visible(given)} is the address of a DuckLake: {instead}")
    try:
        return local_path(given)
    except UnusablePath as error:
        raise typer.BadParameter(visible(error)) from None


def new_file(given: str | Path) -> Path:
    """Returns the path of a file to be written, whose folder is made if it is not there."""
    path = local(given)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(visible(f"the folder {path.parent} cannot be made: {error.strerror}")) from None
    return path


def folder_option(instead: str) -> Any:
    """The option --lake of a command that needs a folder; `instead`: what to do for a DuckLake."""
    return typer.Option(
        "--lake",
        envvar="TRACELAKE_LAKE",
        help="Folder of the lake.",
        show_default="./lake",
        parser=partial(local, instead=instead),
        metavar="FOLDER",
    )


def local_or_store(given: str | Path) -> Path | str:
    """Returns a path that the user gave, or the address of a DuckLake as it was given: see pipelines/runs/store."""
    return str(given) if str(given).startswith(DUCKLAKE) else local(given)


# A Path, or a str for a DuckLake; typer has no unions.
AnyLakeOption = Annotated[
    Any,
    typer.Option(
        "--lake",
        envvar="TRACELAKE_LAKE",
        help="Folder of the lake, or a DuckLake: `ducklake:postgres:…?data=s3://…`.",
        show_default="./lake",
        parser=local_or_store,
        metavar="LAKE",
    ),
]


def is_store(lake: Any) -> bool:
    """Whether a lake is not a folder: it is asked by its address."""
    return str(lake).startswith(DUCKLAKE)


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
DEFAULT_LAKE = Path("lake")


class _Console(Console):
    """A console that prints strings as one line of plain text: names are shown, never interpreted as markup.

    Our own colors and lines are Text: see `styled`.
    """

    def render_str(self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any) -> Text:
        return Text(visible(text), style=style, justify=justify, overflow=overflow)

    def print(self, *things: Any, **how: Any) -> None:
        """Print, below what has to stand above it (`print_above`)."""
        while self is out and _above:
            super().print(_above.pop(0), soft_wrap=True)
        super().print(*things, **how)

    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, and still print what is buffered; commands.py ends the process as other tools do."""
        raise  # the exception that rich is handling


def make_console(**options: Any) -> Console:
    """A console that takes strings as text."""
    return _Console(highlight=False, **options)


def styled(template: str, *values: Any, **named: Any) -> Text:
    """Returns rich's markup with `{}`, `{:,}` and `{name}` filled in afterward, so that values are text:
    `styled("[red]{}[/]", name)`.
    """
    text = Text.from_markup(template, emoji=False)
    fields = list(_FIELD.finditer(text.plain))
    pieces = text.divide([at for field in fields for at in field.span()])
    unnamed, whole = iter(values), Text(style=text.style, end=text.end)
    for number, piece in enumerate(pieces):
        if number % 2:  # a field
            name, how = fields[number // 2].groups()
            filled = Text(visible(format(named[name] if name else next(unnamed), how or "")))
            for span in piece.spans:
                filled.stylize(span.style)
            piece = filled
        whole.append_text(piece)
    return whole


_FIELD = re.compile(r"\{(\w*)(?::([^{}]*))?\}")

# If stdout is not a terminal, tables get more room than the 80 columns that rich would assume.
out = make_console(width=None if sys.stdout is not None and sys.stdout.isatty() else 140)
err = make_console(stderr=True)
_above: list[Text] = []
on_json: list[Callable[[Any], Any]] = []
"""What is called with each answer of `--json` and returns what is printed: caveats.py adds to it."""


def print_above(lines: Iterable[Text]) -> list[Text]:
    """Print these lines above the answer, once something of it is printed on stdout; returns those that were not printed yet,
    which they take the place of.
    """
    before, _above[:] = list(_above), lines
    return before


def fail(message: str, hint: str = "", *, lines: bool = False) -> typer.Exit:
    """Print an error and a hint to stderr; raise what this returns to exit with status 1.

    `lines`: newlines in the message come from us, or from DuckDB.
    """
    first, *more = message.split("\n") if lines else [message]
    err.print(styled("[bold red]error:[/] {}", first), soft_wrap=True)
    for text in more:
        err.print(text, soft_wrap=True)
    if hint:
        err.print(styled("[dim]{}[/]", hint), soft_wrap=True)
    return typer.Exit(1)


def print_json(value: Any) -> None:
    """Write one JSON value to stdout, unstyled, with what others add to it (`on_json`)."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """Returns what `print_json` writes."""
    for add in on_json:
        value = add(value)
    return json.dumps(value, default=str)


def print_parts(parts: Iterable[str]) -> None:
    """Write one JSON value to stdout that comes in parts, its caveats among them."""
    print_above(())
    for part in parts:
        sys.stdout.write(part)
    print()


@contextmanager
def progress(total: int | None, what: str) -> Iterator[Any]:
    """Shows a progress bar on stderr (none if stderr is not a terminal); yields `advance(n, text)`.

    With a `total` it has percent and the time left. Where more is done than was expected, both go away.
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
    known: list[ProgressColumn] = [
        TaskProgressColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(compact=True),
        TextColumn("so far:"),
    ]
    columns += [*(known if total else ()), TimeElapsedColumn()]
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(visible(what), total=total)

        def advance(n: int = 1, text: str | None = None) -> None:
            bar.update(task, advance=n, description=visible(text or what))
            if total and bar.tasks[0].completed > total:
                bar.columns = (*columns[:3], columns[-1])
                bar.update(task, total=None)

        yield advance


def print_rows(headings: tuple[str, ...], rows: list[tuple[str, ...]], json: bool) -> None:
    """Print rows as a table, or as JSON with the headings as names."""
    if json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
        return
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    out.print(table)
