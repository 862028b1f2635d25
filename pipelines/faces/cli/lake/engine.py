"""`--engine` of `tracelake ingest` and `tracelake materialize`: its options, progress and failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pipelines.base import stopping
from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import err, fail

IN_PROCESS = "in-process"
_NAMES = f"{IN_PROCESS} or ray"
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        envvar="TRACELAKE_ENGINE",
        help=f"Cut the work into units for an engine: {_NAMES}. See docs/engines.md.",
        rich_help_panel="Engine",
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        envvar="TRACELAKE_ENGINE_ADDRESS",
        help="The cluster: ray://host:10001. By default one on this machine.",
        rich_help_panel="Engine",
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        envvar="TRACELAKE_STORE",
        help="Where units are committed: ducklake:postgres:… for several machines. By default the lake's folder.",
        rich_help_panel="Engine",
    ),
]
_SHOWN = 10
LOG_EVERY_S = 30.0


@contextmanager
def engine_at(name: str | None, address: str | None, store: str | None) -> Iterator[Any]:
    """Yield the engine, or None if none is requested.

    An interrupt in the block (Ctrl-C or SIGTERM) cancels the submitted units, and exits with status 130 or 143.
    """
    if name is None:
        if address or store:
            raise typer.BadParameter(f"--address and --store need --engine: {_NAMES}")
        yield None
        return
    from pipelines.engines.open_engine import open_engine

    try:
        opened = open_engine(name, address)
    except ValueError as error:
        raise typer.BadParameter(visible(error)) from None
    except ConnectionError as error:
        raise fail(f"no {name} cluster at {address}: {str(error).splitlines()[0]}") from None
    try:
        with opened as engine:
            yield engine
    except KeyboardInterrupt:
        err.print("cancelled: units that were done are in the store; the same command does the rest", soft_wrap=True)
        raise typer.Exit(stopping.exit_code()) from None


@contextmanager
def following(what: str) -> Iterator[Callable[[Any, Any], None]]:
    """Yield a callback `on_unit(so_far, unit)` that shows on stderr how many units are done and failed.

    On a terminal, this is a bar with the time left. In a log, it is a line every LOG_EVERY_S seconds.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(visible(what), total=None)
        logged_at = time.monotonic()

        def on_unit(so_far: Any, _: Any) -> None:
            nonlocal logged_at
            failed = f", {len(so_far.failed)} failed" if so_far.failed else ""
            message = f"{what}: {so_far.n_done} of {so_far.n_units} units{failed}"
            bar.update(task, description=visible(message), completed=so_far.size_done, total=so_far.size)
            if not err.is_terminal and time.monotonic() - logged_at >= LOG_EVERY_S:
                logged_at = time.monotonic()
                err.print(visible(message), soft_wrap=True, markup=False)

        yield on_unit


def tell_failed(run: Any) -> None:
    """Print the failed units on stderr, and raise typer.Exit if a unit failed.

    The files of failed units are in `rejects`. If they could not be stored there, print the reason.
    """
    for failure in run.failed[:_SHOWN]:
        file_names = ", ".join(Path(item).name for item in failure.items[:3])
        more = f" and {len(failure.items) - 3} more" if len(failure.items) > 3 else ""
        err.line(
            "[red]unit {} failed[/] {} times ({}{}): {}",
            failure.unit,
            failure.attempts,
            file_names,
            more,
            failure.error,
        )
    if len(run.failed) > _SHOWN:
        err.print(f"and {len(run.failed) - _SHOWN} more units", soft_wrap=True)
    if run.not_kept:
        err.line("[red]and `rejects` does not have their files:[/] {}", run.not_kept)
    if run.failed:
        raise typer.Exit(1)


def units_as_json(run: Any) -> dict[str, Any]:
    """Return the numbers of done and failed units and their cost on the workers, in seconds, for JSON."""
    return {
        "units": run.n_done,
        "failed_units": [asdict(failure) for failure in run.failed],
        "worker_seconds": round(run.seconds, 3),
        "worker_cpu_seconds": round(run.cpu_seconds, 3),
    }
