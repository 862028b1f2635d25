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
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

LakeOption = Annotated[
    Path, typer.Option("--lake", envvar="TRACELAKE_LAKE", help="Folder of the lake.", show_default="./lake")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
DEFAULT_LAKE = Path("lake")

# Where stdout is no terminal, tables get room instead of the 80 columns that rich would guess.
out = Console(width=None if sys.stdout.isatty() else 140)
err = Console(stderr=True)


def fail(message: str, way_out: str = "") -> typer.Exit:
    """Print an error with its way out to stderr; raise what this returns to leave with status 1."""
    err.print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)
    if way_out:
        err.print(f"[dim]{way_out}[/]", highlight=False, soft_wrap=True)
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
