"""What the commands share: options, consoles, errors that tell the way out, progress bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pipelines.paths import UnusablePath, local_path


def local(given: str | Path) -> Path:
    """A path that the user gives, refused where it is none of this machine's."""
    try:
        return local_path(given)
    except UnusablePath as error:
        raise typer.BadParameter(str(error)) from None


LakeOption = Annotated[
    Path,
    typer.Option(
        "--lake",
        envvar="TRACELAKE_LAKE",
        help="Folder of the lake.",
        show_default="./lake",
        parser=local,
        metavar="FOLDER",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
DEFAULT_LAKE = Path("lake")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would leave with 1, and with what is buffered; commands.py ends the process as other tools end."""
        raise  # what rich is handling


# Where stdout is no terminal, tables get room instead of the 80 columns that rich would guess.
out = _Console(width=None if sys.stdout is not None and sys.stdout.isatty() else 140)
err = _Console(stderr=True)


def fail(message: str, way_out: str = "") -> typer.Exit:
    """Print an error with its way out to stderr; raise what this returns to leave with status 1."""
    err.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    if way_out:
        err.print(f"[dim]{escape(way_out)}[/]", highlight=False, soft_wrap=True)
    return typer.Exit(1)


def print_json(value: Any) -> None:
    """Write one JSON value to stdout, unstyled."""
    print(json.dumps(value, default=str))


def human_us(microseconds: float) -> str:
    """A time for people: `12.3 us`, `4.56 ms`, `1.23 s`."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:,.2f} {unit}"
    return f"{microseconds:,.1f} us"


@contextmanager
def progress(total: int | None, what: str) -> Iterator[Any]:
    """A progress bar on stderr (none where stderr is no terminal); yields `advance(n, text)`."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def advance(n: int = 1, text: str | None = None) -> None:
            bar.update(task, advance=n, description=text or what)

        yield advance
